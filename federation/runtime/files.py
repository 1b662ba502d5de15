"""Directories of our own, and files that appear whole, with their mode from the first moment on.

Must not decide where files go.
"""

from __future__ import annotations

import os
from pathlib import Path

from federation.model.errors import PreconditionFailed


def make_private_directory(directory: Path, *, mode: int = 0o700) -> None:
    """Make it for its owner alone unless it exists, and make sure that files can be made in it.

    `mode` 0o711 lets others pass through to folders of theirs. Raises PreconditionFailed.
    """
    probe = directory / f".probe.{os.getpid()}"
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        raise PreconditionFailed(
            f"cannot write to the directory {directory}: {error.strerror}"
        ) from error


def write_whole(path: Path, content: bytes, *, mode: int) -> None:
    """Replace ``path``; nobody ever sees half of it, nor with another mode."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        # The mask of the process may have taken bits away.
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    beside.replace(path)


def read_whole(path: Path) -> bytes:
    """Raises PreconditionFailed."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PreconditionFailed(f"cannot read {path}: {error.strerror or error}") from error
