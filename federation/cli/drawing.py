"""A decision drawn for the eye: the funnel of its clusters, and the shares as bars.

For terminals alone; must not be imported where nothing is drawn: rich takes its time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from federation.cli.output import print_heading, terminal_columns
from federation.codec.funnel import FunnelStep, by_importance, funnel_steps
from federation.model.printable import printable
from federation.model.readable import counted
from federation.v1 import scheduling_pb2

LEAST_BAR: Final = 8
MOST_BAR: Final = 32
MOST_SHARES: Final = 12
# Of no consequence to what is drawn; without it a dumb terminal's width would be taken for 80.
_LINES: Final = 25
_STEP, _SHARE, _REST = "cyan", "green", "dim"


def can_draw() -> bool:
    """Whether bars can be written to standard output."""
    return sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")


def draw_decision(decision: scheduling_pb2.Decision) -> None:
    """Nothing where the decision has no trace."""
    if not decision.trace.clusters:
        return
    width = terminal_columns()
    console = Console(file=sys.stdout, width=width, height=_LINES, highlight=False)
    bar = max(LEAST_BAR, min(MOST_BAR, width // 5))
    print_heading("From all clusters to the promise")
    clusters = by_importance(decision.trace.clusters)
    console.print(_funnel(funnel_steps(decision, clusters), bar))
    given = [each for each in clusters if each.replicas]
    if given:
        print_heading("Replicas, of those that are available")
        console.print(_shares(given[:MOST_SHARES], bar))
    if len(given) > MOST_SHARES:
        console.print(f"and {counted(len(given) - MOST_SHARES, 'cluster')} more", style=_REST)


def _grid() -> Table:
    return Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))


def _funnel(steps: Sequence[FunnelStep], width: int) -> Table:
    table = _grid()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=width)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style=_REST)
    most = max(1, steps[0].left)
    for step in steps:
        bar = Bar(size=most, begin=0, end=step.left, width=width, color=_STEP)
        table.add_row(str(step.left), bar, step.title, Text(printable(_told(step))))
    return table


def _told(step: FunnelStep) -> str:
    """What is said beside a step: how it went, and who left for which reason."""
    left = [f"{count} left: {reason}" for reason, count in step.reasons]
    others = [f"{step.others} left for other reasons"] if step.others else []
    return "; ".join(filter(None, (step.note, *left, *others)))


def _shares(clusters: Sequence[scheduling_pb2.ClusterTrace], width: int) -> Table:
    table = _grid()
    table.add_column(overflow="fold")
    table.add_column(width=width)
    table.add_column(justify="right", no_wrap=True)
    most = max(max(each.replicas, each.available_replicas) for each in clusters)
    for each in clusters:
        bar = Bar(size=most, begin=0, end=each.replicas, width=width, color=_SHARE)
        of = "unknown" if each.availability_unknown else str(each.available_replicas)
        table.add_row(Text(printable(each.name)), bar, f"{each.replicas} of {of}")
    return table
