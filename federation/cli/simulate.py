"""The verb ``simulate``: decide bindings on clusters from files, without any server.

Must not load what decides before it is asked to: ``federation.cli.simulating`` answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from federation.cli.durations import DurationType
from federation.cli.file_options import cases_option, merge_option, model_rule_option
from federation.cli.output import Output, unnamed_output_option
from federation.model.placement import TieBreak

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_LOST_SECONDS: Final = 300.0
# As the constants of these names say that bound preemption in a control plane.
MOST_OF_NAMESPACE: Final = 100
MOST_REPLICAS: Final = 1000
MOST_COUNTED: Final = 2**31 - 1
# The options that say how fast things happen.
FAILOVER_LIMITS: Final = (
    "lost_seconds",
    "preempted_replicas",
    "preempted_replicas_of_namespace",
)


def virtual_time_options(command: _F) -> _F:
    """``--lose``, ``--back``, ``--arrive``, ``--delete``, ``--lost-seconds`` and what bounds
    preemption.
    """
    for option in (
        click.option(
            "--preempted-replicas-of-namespace",
            type=click.IntRange(0, MOST_COUNTED),
            default=MOST_OF_NAMESPACE,
            show_default=True,
            help="Of one namespace so many replicas are preempted within a minute, at most.",
        ),
        click.option(
            "--preempted-replicas",
            type=click.IntRange(0, MOST_COUNTED),
            default=MOST_REPLICAS,
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


EPILOG = """Examples:

\b
fedctl simulate -f clusters.yaml -f deployment.yaml -f policy.yaml
fedctl simulate -f everything.yaml -o json
fedctl simulate -f everything.yaml --scheduler-config profiles.yaml
fedctl simulate -f everything.yaml --lose member1@60s --back member1@20m
fedctl simulate -f everything.yaml --arrive shop/web@5m --delete shop/api@1h
fedctl simulate --cases cases.jsonl > answers.jsonl
"""


@click.command(epilog=EPILOG)
@click.option("-f", "--filename", "paths", multiple=True, help="File with objects, or - .")
@cases_option
@click.option(
    "--tie-break", type=click.Choice([each.value for each in TieBreak]), help="Order among equals."
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
    --arrive or --delete it goes on in virtual time: what moves off a cluster that falls silent,
    when, who waits, and who gets the room that is given back.
    """
    later = {"lose": lose, "back": back, "arrive": arrive, "delete": delete}
    limits = {name: words.pop(name) for name in FAILOVER_LIMITS}
    if cases is not None and (paths or reserve or any(later.values()) or any(words.values())):
        raise click.UsageError("--cases takes what it needs from the lines of its file")
    if cases is None and not paths:
        raise click.UsageError("give the files with -f, or --cases")
    # Who asks for help, or mistypes, would wait for all that decides.
    from federation.cli.simulating import simulate_cases, simulate_files  # noqa: PLC0415 - see above

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
