"""The verbs ``simulate`` and ``what-if``, and the options that verbs on files share.

Must not load what decides before a verb is asked to: ``simulating`` and ``traces`` answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from federation.cli.arguments import DurationType, RenamedOption
from federation.cli.output import Output, unnamed_output_option
from federation.model.errors import InvalidRequest
from federation.model.placement import TieBreak

# The words of ModelRule and of Merge.
MODEL_RULES: Final = ("documented", "boundary", "simulated")
MERGES: Final = ("quality", "minimum")

model_rule_option = click.option(
    "--model-rule", type=click.Choice(MODEL_RULES), help="How grades count."
)
merge_option = click.option("--merge", type=click.Choice(MERGES), help="How levels combine.")
cases_option = click.option(
    "--cases", metavar="FILE", help="A case a line, or - ; an answer a line comes back."
)


F = TypeVar("F", bound=Callable[..., Any])
MAX_WORKERS: Final = 512


def trace_options(what_for: str) -> Callable[[F], F]:
    """``--scheduler-config``, and what that is for, and ``--workers``."""

    def add(command: F) -> F:
        workers = click.option(
            "--workers",
            type=click.IntRange(1, MAX_WORKERS),
            help="Processes; all cores when not given.",
        )
        profiles = click.option(
            "--scheduler-config",
            type=click.Path(path_type=Path),
            help=f"File with scheduler profiles: {what_for}.",
        )
        return profiles(workers(command))

    return add


def cores() -> int:
    """How many processes may run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


DEFAULT_LOST_SECONDS: Final = 300.0
# As the constants of these names say that bound preemption in a control plane.
MAX_OF_NAMESPACE: Final = 100
MAX_REPLICAS: Final = 1000
MAX_COUNTED: Final = 2**31 - 1
# The options that say how fast things happen.
FAILOVER_LIMITS: Final = (
    "lost_seconds",
    "preempted_replicas",
    "preempted_replicas_of_namespace",
)


def virtual_time_options(command: F) -> F:
    """``--lose``, ``--back``, ``--arrive``, ``--delete``, ``--lost-seconds`` and what bounds
    preemption.
    """
    for option in (
        click.option(
            "--preempted-replicas-of-namespace",
            type=click.IntRange(0, MAX_COUNTED),
            default=MAX_OF_NAMESPACE,
            show_default=True,
            help="Of one namespace so many replicas are preempted within a minute, at most.",
        ),
        click.option(
            "--preempted-replicas",
            type=click.IntRange(0, MAX_COUNTED),
            default=MAX_REPLICAS,
            show_default=True,
            help="So many replicas are preempted within a minute, at most.",
        ),
        click.option(
            "--lost-seconds",
            type=DurationType(1, 2_419_200),
            default=DEFAULT_LOST_SECONDS,
            show_default=True,
            help="How long a cluster is silent before it is lost.",
        ),
        click.option(
            "--delete", multiple=True, metavar="NS/NAME@SPAN", help="A binding is deleted then."
        ),
        click.option(
            "--arrive", multiple=True, metavar="NS/NAME@SPAN", help="A binding comes only then."
        ),
        click.option(
            "--back", multiple=True, metavar="CLUSTER@SPAN", help="It is heard again then."
        ),
        click.option(
            "--lose",
            multiple=True,
            metavar="CLUSTER[@SPAN]",
            help="It falls silent so long after the beginning, as in member1@90s.",
        ),
    ):
        command = option(command)
    return command


SIMULATE_EPILOG = """Examples:

\b
fedctl simulate -f clusters.yaml -f deployment.yaml -f policy.yaml
fedctl simulate -f everything.yaml -o json
fedctl simulate -f everything.yaml --scheduler-config profiles.yaml
fedctl simulate -f everything.yaml --lose member1@60s --back member1@20m
fedctl simulate -f everything.yaml --arrive shop/web@5m --delete shop/api@1h
fedctl simulate --cases cases.jsonl > answers.jsonl
"""


@click.command(epilog=SIMULATE_EPILOG)
@click.option("-f", "--filename", "paths", multiple=True, help="File with objects, or - .")
@cases_option
@click.option(
    "--tie-break",
    type=click.Choice([order.value for order in TieBreak]),
    help="Order among equals.",
)
@model_rule_option
@merge_option
@click.option("--reserve", is_flag=True, help="Hold Duplicated and static weights to capacity too.")
@click.option(
    "--scheduler-config",
    type=click.Path(path_type=Path),
    help="File with scheduler profiles; bindings pick one by schedulerName.",
)
@virtual_time_options
@unnamed_output_option
def simulate(
    paths: Sequence[str],
    cases: str | None,
    output: Output,
    *,
    reserve: bool,
    scheduler_config: Path | None,
    lose: Sequence[str],
    back: Sequence[str],
    arrive: Sequence[str],
    delete: Sequence[str],
    **words: Any,
) -> None:
    """Decide where workloads would run.

    The files hold Clusters, and ResourceBindings or workloads with their policies. With --lose,
    --arrive or --delete it goes on in virtual time. It then shows what moves off a silent cluster,
    and when, who waits, and who gets the room that is given back.
    """
    later = {"lose": lose, "back": back, "arrive": arrive, "delete": delete}
    limits = {name: words.pop(name) for name in FAILOVER_LIMITS}
    if cases is not None and (paths or reserve or any(later.values()) or any(words.values())):
        raise click.UsageError("--cases takes what it needs from the lines of its file")
    if cases is None and not paths:
        raise click.UsageError("give the files with -f, or --cases")
    # Who asks for help, or mistypes, would wait for all that decides.
    from federation.cli.offline.simulating import simulate_cases, simulate_files  # noqa: PLC0415 - see above

    if cases is not None:
        simulate_cases(cases, scheduler_config)
        return
    simulate_files(
        paths,
        output,
        reserve=reserve,
        scheduler_config=scheduler_config,
        later=later,
        limits=limits,
        options={
            "tieBreak": words["tie_break"],
            "modelRule": words["model_rule"],
            "merge": words["merge"],
        },
    )


WHAT_IF_EPILOG = """Examples:

\b
fedctl what-if last-week.trace
fedctl what-if last-week.trace --scheduler-config profiles.yaml
fedctl what-if last-week.trace --policy policy.yaml --svg pictures
fedctl what-if last-week.trace --without member2 -o json
fedctl what-if last-week.trace --dask tcp://scheduler:8786 --window 1h
"""
# As with a replay that is not equal.
NOT_AS_IT_WAS: Final = 3


@click.command(epilog=WHAT_IF_EPILOG)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICIES",
    help="File with PropagationPolicies: bindings whose workload one selects get its placement.",
)
@click.option(
    "--fleet-file",
    "clusters",
    cls=RenamedOption,
    old=["--clusters"],
    metavar="CLUSTERS",
    help="File with Clusters: they have these labels, taints and regions; new ones are there too.",
)
@click.option("--without", multiple=True, metavar="CLUSTER", help="It is not there.")
@click.option("--cordon", multiple=True, metavar="CLUSTER", help="It gets nothing new.")
@click.option(
    "--window",
    default="1d",
    show_default=True,
    metavar="SPAN",
    help="Each begins with what was there, and they are worked on side by side; 0s: one.",
)
@click.option(
    "--svg", type=click.Path(path_type=Path), metavar="DIR", help="Write pictures of the figures."
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="On the workers of a Dask cluster, such as tcp://scheduler:8786, in place of --workers.",
)
@trace_options("they decide instead of those of the same names")
@unnamed_output_option
def what_if(
    path: Path,
    policies: Sequence[str],
    clusters: str | None,
    without: Sequence[str],
    cordon: Sequence[str],
    window: str,
    svg: Path | None,
    dask: str | None,
    scheduler_config: Path | None,
    workers: int | None,
    output: Output,
) -> None:
    """Decide recorded decisions anew with something changed.

    Decisions of a trace file are made again, each on what the ones before it left. With nothing
    changed the same comes out: if not, the exit code is 3.
    """
    if dask and workers:
        raise InvalidRequest.of("--dask", "has workers of its own: leave out --workers")
    # Who asks for help, or mistypes, would wait for all that decides.
    from federation.cli.offline.traces import Otherwise, show_what_if  # noqa: PLC0415 - see above

    options = Otherwise(
        policies=policies,
        clusters=clusters,
        without=without,
        cordon=cordon,
        scheduler_config=scheduler_config,
    )
    is_as_it_was = show_what_if(
        path, options, output, window=window, svg=svg, dask=dask, workers=workers
    )
    if not is_as_it_was:
        click.get_current_context().exit(NOT_AS_IT_WAS)
