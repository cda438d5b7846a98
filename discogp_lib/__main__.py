"""The command line: python -m discogp_lib run | sweep | report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from discogp_lib.errors import DiscoGPError
from discogp_lib.profiles import PROFILES, default_profile
from discogp_lib.report import report
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
    many.add_argument("--tasks", nargs="*", help="full or short names; all by default")
    many.add_argument("--methods", nargs="*", help="all of the profile by default")
    many.add_argument("--seeds", nargs="*", type=int, help="all of the profile by default")
    many.add_argument("--jobs", type=int, default=1, help="worker processes")
    many.set_defaults(command=sweep_command)

    table = commands.add_parser("report", help="what has been measured, as a table")
    table.set_defaults(command=report_command)

    for command in (one, many, table):
        command.add_argument("--profile", choices=PROFILES, default=default_profile()[0])
        command.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    return main_parser


def run_command(options: argparse.Namespace) -> int:
    """Compute or look up one run and print its result."""
    task = resolve_task(PROFILES[options.profile], options.task)
    run = Run(options.profile, task, options.method, options.seed)
    plan(options.profile, methods=[options.method])
    record = compute(run, device=options.device)
    for name, value in record.test.items():
        print(f"{name:30s} {value:.4f}" if isinstance(value, float) else f"{name:30s} {value:,}")
    print(f"{'status':30s} {record.data['found'].get('status', '')}")
    print(f"{'record':30s} {run.record_path}")
    return 0


def sweep_command(options: argparse.Namespace) -> int:
    """Compute all runs that are missing; exit code 1 if any failed."""
    runs = plan(options.profile, options.tasks, options.methods, options.seeds)
    outcomes = sweep(runs, jobs=options.jobs, device=options.device)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    print(f"{len(outcomes) - len(failed)} runs done, {len(failed)} failed")
    for outcome in failed:
        print(f"  {outcome.run}: {outcome.error}")
    return 1 if failed else 0


def report_command(options: argparse.Namespace) -> int:
    """Print the mean over seeds of every task and method."""
    print(report(options.profile))
    return 0


if __name__ == "__main__":
    sys.exit(main())
