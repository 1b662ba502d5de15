"""The verb ``what-if``: what would have been decided if something had been otherwise, from a file.

Must not load what decides before it is asked to: ``federation.cli.what_if_answers`` answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from federation.cli.output import Output, unnamed_output_option
from federation.cli.trace_options import trace_options
from federation.model.errors import InvalidRequest

EPILOG = """Examples:

\b
fedctl what-if last-week.trace
fedctl what-if last-week.trace --scheduler-config profiles.yaml
fedctl what-if last-week.trace --policy policy.yaml --svg pictures
fedctl what-if last-week.trace --without member2 -o json
fedctl what-if last-week.trace --dask tcp://scheduler:8786 --window 1h
"""
# As with a replay that is not equal.
NOT_AS_IT_WAS: Final = 3


@click.command(epilog=EPILOG)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICIES",
    help="File with PropagationPolicies: bindings whose workload one selects get its placement.",
)
@click.option(
    "--clusters",
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
    from federation.cli.what_if_answers import Otherwise, show_what_if  # noqa: PLC0415 - see above

    asked = Otherwise(
        policies=policies,
        clusters=clusters,
        without=without,
        cordon=cordon,
        scheduler_config=scheduler_config,
    )
    is_as_it_was = show_what_if(
        path, asked, output, window=window, svg=svg, dask=dask, workers=workers
    )
    if not is_as_it_was:
        click.get_current_context().exit(NOT_AS_IT_WAS)
