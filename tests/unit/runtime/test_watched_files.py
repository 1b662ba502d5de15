from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from federation.model.errors import PreconditionFailed
from federation.runtime.watched_files import FileWatch, WatchedFiles
from lab.patience import until

# Longer than any test takes: only requests make it look.
NEVER_SECONDS = 3600.0


def pair(cert: Path, key: Path) -> Callable[[], str]:
    """What both files say, where they belong together."""

    def load() -> str:
        contents = [path.read_text() for path in (cert, key)]
        if contents[0] != contents[1]:
            raise PreconditionFailed(f"{contents[0]} is not the certificate of {contents[1]}")
        return contents[0]

    return load


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("first")
    return tmp_path / "cert", tmp_path / "key"


@asynccontextmanager
async def reading(watch: FileWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.keep_reading())
    # Its first step: from here on requests reach it.
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_files_are_loaded_again_once_they_belong_together(
    paths: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = WatchedFiles("a pair", paths, pair(*paths))
    assert (files.value, files.read_again()) == ("first", False)
    paths[0].write_text("second")
    assert [files.read_again(), files.read_again()] == [False, False]
    assert files.value == "first"
    assert [record.message for record in caplog.records] == ["changed files cannot be used"]
    paths[1].write_text("second")
    assert files.read_again()
    assert files.value == "second"
    assert not files.read_again()
    paths[1].unlink()
    with pytest.raises(OSError, match="key"):
        files.read_again()
    assert files.value == "second"


def test_a_file_that_is_written_meanwhile_is_read_once_it_is_whole(
    paths: tuple[Path, Path],
) -> None:
    contents = iter(["first", "half", "whole", "whole"])

    def load() -> str:
        # Somebody writes between two reads of the same file.
        paths[0].write_text(next(contents))
        return paths[0].read_text()

    files = WatchedFiles("a file", paths[:1], load)
    paths[0].write_text("begun")
    assert not files.read_again()
    assert files.value == "first"
    assert not files.read_again()
    assert files.read_again()
    assert files.value == "whole"


def test_files_that_do_not_fit_at_the_start_are_refused(paths: tuple[Path, Path]) -> None:
    paths[0].write_text("other")
    with pytest.raises(PreconditionFailed, match="is not the certificate of"):
        WatchedFiles("a pair", paths, pair(*paths))


async def test_a_request_reads_all_files_at_once(paths: tuple[Path, Path]) -> None:
    changes: list[str] = []

    async def changed() -> None:
        changes.append("changed")
        raise ValueError("harms this one alone")

    watch = FileWatch(NEVER_SECONDS)
    # Nobody reads yet: there is nothing to be read at once.
    watch.request()
    cert = watch.watch("a certificate", paths[:1], paths[0].read_text, changed)
    key = watch.watch("a key", paths[1:], paths[1].read_text)

    async def values() -> tuple[str, str]:
        await asyncio.sleep(0)
        return cert.value, key.value

    async with reading(watch):
        for content in ("second", "third"):
            for path in paths:
                path.write_text(content)
            watch.request()
            assert await until(values, (content, content).__eq__) == (content, content)
    assert changes == ["changed", "changed"]


async def test_files_are_looked_at_without_a_request(paths: tuple[Path, Path]) -> None:
    watch = FileWatch(0.0)
    cert = watch.watch("a certificate", paths[:1], paths[0].read_text)

    async def value() -> str:
        await asyncio.sleep(0)
        return cert.value

    async with reading(watch):
        paths[0].write_text("second")
        assert await until(value, "second".__eq__) == "second"
