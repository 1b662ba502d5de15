"""Files that are read again while a program runs: certificates, their keys, and authorities.

Must not know what is in the files: ``load`` does, and refuses files that do not fit together.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from federation.model.errors import FederationError

# A renewed file is in use within ten seconds; its load may take a moment.
READ_EVERY_SECONDS: Final = 5.0

Value = TypeVar("Value")
Changed: TypeAlias = Callable[[], Awaitable[None]]

logger = logging.getLogger(__name__)


class WatchedFiles(Generic[Value]):
    """The value that ``load`` makes of some files, made again after one of them has changed.

    While ``load`` refuses the new content the old value stays, and the log says why, once.
    ``value`` may be read in any thread; ``read_again`` belongs to one thread at a time.
    """

    def __init__(self, name: str, paths: Sequence[Path], load: Callable[[], Value]) -> None:
        """``name`` is for the log. Raises what ``load`` raises."""
        self._name = name
        self._paths = tuple(paths)
        self._load = load
        self._refusal = ""
        self._digests = self._read_digests()
        self.value = load()

    def read_again(self) -> bool:
        """Look at the files; whether there is a new value. May wait for a disk."""
        digests = self._read_digests()
        if digests == self._digests:
            self._refusal = ""
            return False
        try:
            value = self._load()
        except FederationError as error:
            self._refuse(str(error))
            return False
        if self._read_digests() != digests:
            # Somebody is writing them: the next look reads them whole.
            return False
        self._digests, self._refusal, self.value = digests, "", value
        logger.info("files were read again", extra={"fields": {"files": self._name}})
        return True

    def _read_digests(self) -> tuple[bytes, ...]:
        return tuple(map(_digest, self._paths))

    def _refuse(self, why: str) -> None:
        if why != self._refusal:
            self._refusal = why
            fields = {"files": self._name, "why": why}
            logger.warning("changed files cannot be used", extra={"fields": fields})


async def _do_nothing() -> None:
    pass


class FileWatch:
    """All files that a program reads again: every few seconds, and at once after ``request``."""

    def __init__(self, every_seconds: float = READ_EVERY_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._watched: list[tuple[Callable[[], bool], Changed]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requested = asyncio.Event()

    def watch(
        self,
        name: str,
        paths: Sequence[Path],
        load: Callable[[], Value],
        changed: Changed = _do_nothing,
    ) -> WatchedFiles[Value]:
        """Load these files, and load them again after a change while ``keep_reading`` runs.

        ``changed`` is called on the event loop after each new value. Raises what ``load`` raises.
        """
        files = WatchedFiles(name, paths, load)
        self._watched.append((files.read_again, changed))
        return files

    def request(self) -> None:
        """Read all files at once. For handlers of signals, and any thread."""
        if self._loop is not None:
            # A loop that is closed reads nothing any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._requested.set)

    async def keep_reading(self) -> None:
        """Read again and again, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_seconds):
                    await self._requested.wait()
            self._requested.clear()
            for read_again, changed in tuple(self._watched):
                try:
                    if await asyncio.to_thread(read_again):
                        await changed()
                except Exception:
                    # One set of files must not keep the others from being read.
                    logger.exception("files were not read again")


def _digest(path: Path) -> bytes:
    """Of its content; empty where it cannot be read, which is for ``load`` to say."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""
