"""The verb ``simulate``: decide bindings on clusters from files, without any server.

Must not load what decides before it is asked to: ``federation.cli.simulating`` answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from federation.cli.file_options import cases_option, merge_option, model_rule_option
from federation.cli.output import Output, unnamed_output_option
from federation.cli.virtual_time_options import FAILOVER_LIMITS, virtual_time_options
from federation.model.placement import TieBreak

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
