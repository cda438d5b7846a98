"""The command line: python -m discogp_lib run | certify | sweep | report | reproduce."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from discogp_lib.errors import ConfigError, DiscoGPError
from discogp_lib.executors import Executor, default_device, default_jobs
from discogp_lib.paths import RESULTS
from discogp_lib.profiles import PROFILES, default_profile
from discogp_lib.report import report
from discogp_lib.runs import Run, compute
from discogp_lib.slurm import Slurm, SlurmOptions
from discogp_lib.sweep import plan, resolve_task, sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake ends in one sentence and exit code 2."""
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # progress is seen at once, also in a pipe
    try:
        return options.command(options)
    except DiscoGPError as error:
        print(f"discogp: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"discogp: {refused(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("discogp: interrupted; call it again and it goes on.", file=sys.stderr)
        return 130


def refused(error: OSError) -> str:
    """What the system did not do, where, and what to do, in one line."""
    what = error.strerror or " ".join(str(error).split())
    where = f" ({error.filename})" if error.filename else ""
    return f"{what}{where}; put that right and call it again, and it goes on."


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    main_parser = argparse.ArgumentParser(prog="python -m discogp_lib", description=__doc__)
    commands = main_parser.add_subparsers(required=True)

    one = commands.add_parser("run", help="one run: a task, a method, a seed")
    one.set_defaults(command=run_command)

    proof = commands.add_parser("certify", help="run a sheaf without its model, and compare")
    proof.set_defaults(command=certify_command)

    many = commands.add_parser("sweep", help="all runs of a profile, or some of them")
    many.set_defaults(command=sweep_command)

    table = commands.add_parser("report", help="what has been measured, as a table")
    table.set_defaults(command=report_command)

    whole = commands.add_parser("reproduce", help="all runs, then every table and figure")
    whole.set_defaults(command=reproduce_command)

    for command in (one, proof):
        command.add_argument("--task", required=True, help="full or short name: ioi, P36, AGA")
        command.add_argument("--method", default="discogp")
        command.add_argument("--seed", type=int, default=0)
    for command in (many, whole):
        command.add_argument("--tasks", nargs="*", help="full or short names; all by default")
        command.add_argument("--methods", nargs="*", help="all of the profile by default")
        command.add_argument("--seeds", nargs="*", type=int, help="all of the profile by default")
        command.add_argument(
            "--jobs", type=positive, help="worker processes; one per core or GPU by default"
        )
    for command in (one, proof, many, table, whole):
        command.add_argument(
            "--profile", choices=PROFILES, help="by default what suits the machine"
        )
    for command in (one, proof, many, whole):
        command.add_argument("--device", help="cpu, cuda, cuda:1, ...; a GPU where there is one")
    add_slurm(many)
    return main_parser


def add_slurm(command: argparse.ArgumentParser) -> None:
    """The options that choose and describe a cluster; those not given are None."""
    command.add_argument("--executor", choices=("local", "slurm"), default="local")
    slurm = command.add_argument_group("with --executor slurm")
    slurm.add_argument("--partition", help="the cluster's own by default")
    slurm.add_argument("--gpus-per-task", type=int, help="GPUs of a job (0)")
    slurm.add_argument("--cpus-per-task", type=positive, help="cores of a job (2)")
    slurm.add_argument("--minutes", type=positive, help="time limit of a job (240)")
    slurm.add_argument("--sbatch", nargs="*", metavar="KEY=VALUE", help="such as account=me mem=8G")
    slurm.add_argument("--poll", type=float, help="seconds between questions (10)")


def positive(text: str) -> int:
    """A whole number from 1."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def chosen_run(options: argparse.Namespace) -> Run:
    """The one run that a command is about."""
    profile = options.profile or default_profile()[0]
    task = resolve_task(PROFILES[profile], options.task)
    return Run(profile, task, options.method, options.seed)


def run_command(options: argparse.Namespace) -> int:
    """Compute or look up one run and print its result."""
    run = chosen_run(options)
    record = compute(run, device=options.device or default_device())
    for name, value in record.test.items():
        print(f"{name:30s} {value:.4f}" if isinstance(value, float) else f"{name:30s} {value:,}")
    print(f"{'status':30s} {record.data['found'].get('status', '')}")
    print(f"{'record':30s} {run.record_path}")
    return 0


def certify_command(options: argparse.Namespace) -> int:
    """Export one run's sheaf, run it alone and compare; exit code 1 if it differs."""
    from discogp_lib.certificate import CERTIFICATE, FILE, certify_run

    run = chosen_run(options)
    certificate = certify_run(run, device=options.device or default_device())
    for name, value in certificate.as_dict().items():
        print(f"{name:30s} {', '.join(value) if isinstance(value, list) else value}")
    print(f"{'sheaf':30s} {run.folder / FILE}")
    print(f"{'certificate':30s} {run.folder / CERTIFICATE}")
    return 0 if certificate.passed else 1


def sweep_command(options: argparse.Namespace) -> int:
    """Compute all runs that are missing; exit code 1 if any failed."""
    profile = options.profile or default_profile()[0]
    runs = plan(profile, options.tasks, options.methods, options.seeds)
    device = options.device or default_device()
    jobs = options.jobs or default_jobs(device)
    outcomes = sweep(runs, jobs=jobs, device=device, executor=cluster(profile, options))
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    print(f"{len(outcomes) - len(failed)} runs done, {len(failed)} failed")
    for outcome in failed:
        print(f"  {outcome.run}: {outcome.error}")
    return 1 if failed else 0


def cluster(profile: str, options: argparse.Namespace) -> Executor | None:
    """SLURM, if it was asked for."""
    names = [option.name for option in fields(SlurmOptions)]
    given: dict[str, Any] = {
        name: value for name in names if (value := getattr(options, name)) is not None
    }
    if options.executor == "local":
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise ConfigError(f"{flags} is for SLURM; add --executor slurm, or leave it out.")
        return None
    if options.device or options.jobs:
        flags = " and ".join(f"--{name}" for name in ("device", "jobs") if getattr(options, name))
        raise ConfigError(f"{flags}: SLURM decides; ask for --gpus-per-task and --cpus-per-task.")
    pairs = [text.partition("=") for text in given.get("sbatch", [])]
    if wrong := [key for key, sign, _ in pairs if not (key and sign)]:
        raise ConfigError(f"--sbatch takes KEY=VALUE, such as account=me, and not {wrong[0]!r}.")
    given["sbatch"] = {key.lstrip("-"): value for key, _, value in pairs}
    return Slurm(RESULTS / profile / "slurm", SlurmOptions(**given))


def report_command(options: argparse.Namespace) -> int:
    """Print the mean over seeds of every task and method."""
    print(report(options.profile or default_profile()[0]))
    return 0


def reproduce_command(options: argparse.Namespace) -> int:
    """Compute what is missing and execute the notebooks that are out of date."""
    from discogp_lib.reproduce import reproduce  # papermill is not needed by the others

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
