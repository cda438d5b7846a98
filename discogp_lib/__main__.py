"""The command line: python -m discogp_lib run | sweep | report | reproduce."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from discogp_lib.errors import DiscoGPError
from discogp_lib.profiles import PROFILES, default_profile
from discogp_lib.report import report
from discogp_lib.reproduce import reproduce
from discogp_lib.runs import Run, compute
from discogp_lib.sweep import plan, resolve_task, sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake ends in one sentence and exit code 2."""
    options = parser().parse_args(arguments)
    try:
        return options.command(options)
    except DiscoGPError as error:
        print(f"discogp: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("discogp: interrupted; call it again and it goes on.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    main_parser = argparse.ArgumentParser(prog="python -m discogp_lib", description=__doc__)
    commands = main_parser.add_subparsers(required=True)

    one = commands.add_parser("run", help="one run: a task, a method, a seed")
    one.add_argument("--task", required=True, help="full or short name: ioi, P36, AGA")
    one.add_argument("--method", default="discogp")
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(command=run_command)

    many = commands.add_parser("sweep", help="all runs of a profile, or some of them")
    many.set_defaults(command=sweep_command)

    table = commands.add_parser("report", help="what has been measured, as a table")
    table.set_defaults(command=report_command)

    whole = commands.add_parser("reproduce", help="all runs, then every table and figure")
    whole.set_defaults(command=reproduce_command)

    for command in (many, whole):
        command.add_argument("--tasks", nargs="*", help="full or short names; all by default")
        command.add_argument("--methods", nargs="*", help="all of the profile by default")
        command.add_argument("--seeds", nargs="*", type=int, help="all of the profile by default")
        command.add_argument("--jobs", type=int, help="worker processes; one per core by default")
    for command in (one, many, table, whole):
        command.add_argument(
            "--profile", choices=PROFILES, help="by default what suits the machine"
        )
        command.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    return main_parser


def run_command(options: argparse.Namespace) -> int:
    """Compute or look up one run and print its result."""
    profile = options.profile or default_profile()[0]
    task = resolve_task(PROFILES[profile], options.task)
    run = Run(profile, task, options.method, options.seed)
    record = compute(run, device=options.device)
    for name, value in record.test.items():
        print(f"{name:30s} {value:.4f}" if isinstance(value, float) else f"{name:30s} {value:,}")
    print(f"{'status':30s} {record.data['found'].get('status', '')}")
    print(f"{'record':30s} {run.record_path}")
    return 0


def sweep_command(options: argparse.Namespace) -> int:
    """Compute all runs that are missing; exit code 1 if any failed."""
    profile = options.profile or default_profile()[0]
    runs = plan(profile, options.tasks, options.methods, options.seeds)
    jobs = options.jobs or os.cpu_count() or 1
    outcomes = sweep(runs, jobs=jobs, device=options.device)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    print(f"{len(outcomes) - len(failed)} runs done, {len(failed)} failed")
    for outcome in failed:
        print(f"  {outcome.run}: {outcome.error}")
    return 1 if failed else 0


def report_command(options: argparse.Namespace) -> int:
    """Print the mean over seeds of every task and method."""
    print(report(options.profile or default_profile()[0]))
    return 0


def reproduce_command(options: argparse.Namespace) -> int:
    """Compute what is missing and execute the notebooks that are out of date."""
    reproduce(
        options.profile,
        tasks=options.tasks,
        methods=options.methods,
        seeds=options.seeds,
        jobs=options.jobs,
        device=options.device,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
