"""Verbs about trace files: export.

Must not load what makes decisions again: whoever asks a server would wait for that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from federation.cli.connection import connection
from federation.cli.output import with_progress
from federation.cli.times import time_of
from federation.codec.timestamps import timestamp_from_seconds
from federation.model.errors import FederationError
from federation.runtime.terminal import say


@click.group(epilog="Example: fedctl trace export last-week.trace --since 7d")
def trace() -> None:
    """Export recorded decisions to a file."""


@trace.command(epilog="Example: fedctl trace export last-week.trace --since 7d")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--since", metavar="TIME", help="From this time on: 24h ago, or RFC 3339.")
@click.option("--until", metavar="TIME", help="Before this time; now when not given.")
def export(path: Path, since: str | None, until: str | None) -> None:
    """Write recorded decisions to a file, with everything that makes them again.

    It has the specs of clusters and bindings, and no secrets. What is there already is replaced
    once all of it was read.
    """
    if not path.name:
        raise click.UsageError("FILE names no file")
    now = time.time()
    begins = time_of(since, "--since", now) if since else None
    ends = time_of(until, "--until", now) if until else timestamp_from_seconds(now)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    decisions = 0
    try:
        with beside.open("xb") as file:
            pieces = connection().iterate(lambda api: api.export_trace(begins, ends))
            for piece in with_progress(pieces, "pieces written"):
                file.write(piece.content)
                decisions += piece.decisions
            size = file.tell()
        beside.replace(path)
    except OSError as error:
        raise FederationError(f"cannot write {path}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
    written = "1 decision" if decisions == 1 else f"{decisions} decisions"
    say(f"{written}, {size} bytes: {path}")
