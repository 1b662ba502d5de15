"""Options of the verbs that go through trace files, and how many processes these may use.

Must not open one: who only asks a server does not wait for what reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
MOST_WORKERS: Final = 512


def trace_options(what_for: str) -> Callable[[F], F]:
    """``--scheduler-config``, and what that is for, and ``--workers``."""

    def add(command: F) -> F:
        workers = click.option(
            "--workers",
            type=click.IntRange(1, MOST_WORKERS),
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
