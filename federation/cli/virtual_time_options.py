"""Options of ``simulate`` for virtual time: what happens when, and how fast things happen.

Must not load what makes time pass: whoever asks for help, or mistypes, would wait for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from federation.cli.durations import DurationType

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
