"""Many runs: which ones a profile consists of, and computing those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from discogp_lib.errors import ConfigError
from discogp_lib.executors import Executor, InProcess, Workers
from discogp_lib.methods.settings import needs_budget, variant_names
from discogp_lib.profiles import Profile, get_profile
from discogp_lib.runs import Run, load_record
from discogp_lib.schedule import Agenda, Outcome, told_left
from discogp_lib.tasks import SHORT_NAMES


def plan(
    profile_name: str,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Run]:
    """The runs of a profile, narrowed as asked; those that others build on come first."""
    profile = get_profile(profile_name)
    chosen = [resolve_task(profile, name) for name in tasks] if tasks else list(profile.tasks)
    runs = [
        Run(profile_name, task, method, seed)
        for method in methods or profile.methods
        for task in chosen
        for seed in seeds or profile.seeds_of(task)
    ]
    if not methods:
        numbers = tuple(seeds or profile.seeds)
        more = [*variants(profile_name, numbers[0]), *ablations(profile_name, numbers)]
        runs += [run for run in more if run.task in chosen]
    return sorted(dict.fromkeys(runs), key=lambda run: needs_budget(run.method))


def variants(profile_name: str, seed: int) -> list[Run]:
    """DiscoGP with one thing changed, on the tasks that the profile names for it.

    What another push does is shown on the first of them alone.
    """
    profile = get_profile(profile_name)
    tasks = profile.variant_tasks
    return [
        Run(profile_name, task, f"discogp@{variant}", seed)
        for variant in variant_names(profile.search)
        for task in (tasks[:1] if variant.startswith("push") else tasks)
    ]


def ablations(profile_name: str, seeds: Sequence[int]) -> list[Run]:
    """DiscoGP and ACDC under other ablations: all seeds on IOI, as in the paper, else the first."""
    tasks = dict.fromkeys(["ioi", *get_profile(profile_name).variant_tasks])
    return [
        Run(profile_name, task, method, seed)
        for task in tasks
        for method in ("discogp@mean", "acdc@mean", "acdc@interchange")
        for seed in (seeds if task == "ioi" and method != "acdc@interchange" else seeds[:1])
    ]


def resolve_task(profile: Profile, name: str) -> str:
    """A task by its full or short name."""
    by_short = {SHORT_NAMES[task]: task for task in profile.tasks}
    task = by_short.get(name, name)
    if task not in profile.tasks:
        raise ConfigError(
            f"The profile {profile.name!r} has no task {name!r}; it has {', '.join(by_short)}."
        )
    return task


def sweep(
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    device: str = "cpu",
    executor: Executor | None = None,
    say: Callable[[str], None] = print,
) -> list[Outcome]:
    """Compute all runs that are not in the store; one line each, failures do not stop the rest.

    A run that has to match DiscoGP's size starts as soon as that very run is done, which is added
    where it was not asked for.
    """
    agenda = Agenda(runs)
    outcomes: list[Outcome] = []
    with executor or (InProcess(device) if jobs == 1 else Workers(jobs, device)) as place:
        while agenda.unfinished:
            agenda.start(place.start(agenda.ready()))
            for ended in place.wait():
                for outcome in agenda.end(ended):
                    outcomes.append(outcome)
                    if outcome.computed or outcome.error:
                        left = told_left(agenda.seconds_left(place.at_once))
                        say(f"{agenda.progress} {_told(outcome)}{left}")
    return outcomes


def _told(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"{outcome.run} FAILED: {outcome.error}"
    record = load_record(outcome.run)
    if record is None:
        return f"{outcome.run}: no record"
    test = record.test
    return (
        f"{outcome.run}: accuracy {test['accuracy']:.1%}, weights {test['weight_density']:.2%}, "
        f"edges {test['edge_density']:.2%} ({outcome.seconds:.0f} s)"
    )
