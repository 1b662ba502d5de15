"""Trace files: what is read from them, and how those that are not whole or hostile are refused."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from federation.cli.__main__ import fedctl
from federation.cli.history import NOT_EQUAL
from federation.history import bodies as bodies_module
from federation.history.bodies import deflated
from federation.history.replays import replayed_frame
from federation.history.trace_files import END, MAGIC, MAX_FRAME_BYTES, TraceFile, TraceHeader
from federation.model.errors import InvalidRequest
from federation.model.printable import is_printable
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from lab.traces import HEADER, corpus, write_trace
from tests.unit.cli.hostile import HOSTILE

HEAD = struct.Struct("!4sIIqqI")
GIGABYTE = 1 << 30


def replayed(path: Path) -> Result:
    return CliRunner().invoke(fedctl, ["replay", "--trace", str(path), "--workers", "1"])


def framed(kind: bytes, body: bytes, decisions: int = 0) -> bytes:
    return HEAD.pack(kind, len(body), zlib.crc32(body), 0, 0, decisions) + body


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    decisions, bodies = corpus()
    path = tmp_path_factory.mktemp("trace") / "whole.trace"
    return write_trace(path, decisions[:6], bodies, in_chunk=3).read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    decisions, bodies = corpus()
    path = write_trace(tmp_path / "a.trace", decisions, bodies, in_chunk=7)
    trace = TraceFile.opened(path)
    assert trace.header == HEADER
    assert trace.decisions == len(decisions)
    assert [decision for chunk in trace.chunks() for decision in chunk.decisions] == decisions
    assert [frame.first_at for frame in trace.frames] == [
        decision.at for decision in decisions[::7]
    ]
    empty = write_trace(tmp_path / "empty.trace", [], {})
    assert "Decisions:  0" in replayed(empty).stdout


def test_a_file_that_is_not_whole_is_refused_by_name(tmp_path: Path, whole: bytes) -> None:
    newer = msgspec.msgpack.encode({"v": TraceHeader.newest + 1, "since": "never"})
    bomb = deflated(bytes(65 << 20))
    header = whole[: whole.index(b"dcsn")]
    for content, words in (
        (b"", "is not a trace of fedsched"),
        (b"PK\x03\x04 something else", "is not a trace of fedsched"),
        (MAGIC, "was cut: it ends in the middle, after 15 bytes"),
        (whole[: len(whole) // 2], "was cut: it ends in the middle"),
        (whole[: -len(END)], "was cut: it ends in the middle"),
        (whole[:-1], "was cut: it ends in the middle"),
        (whole + b"more", "goes on after its end"),
        (MAGIC + framed(b"head", deflated(newer)) + END, "trace of version 2, which a newer"),
        (MAGIC + framed(b"head", deflated(b"\xc1")) + END, "its header cannot be read"),
        (MAGIC + END, "does not begin with a header"),
        (header + framed(b"what", b"") + END, "neither a chunk nor the end"),
        (header + HEAD.pack(b"dcsn", 1 << 30, 0, 0, 0, 1), "has a chunk of 1073741824 bytes"),
        (header + framed(b"dcsn", bomb, 1) + END, "more than 67108864 bytes once it is decom"),
        (header + framed(b"dcsn", b"?", 1) + END, "is damaged: what is at byte"),
        (header + framed(b"dcsn", deflated(b"\x80"), 1) + END, "is damaged: what is at"),
        (whole[:-200] + bytes(200), "neither a chunk nor the end"),
        (whole[: len(header) + 99] + b"\xff" + whole[len(header) + 100 :], "the checksum of what"),
    ):
        path = tmp_path / "bad.trace"
        path.write_bytes(content)
        answer = replayed(path)
        assert answer.exit_code == 1, (words, answer.output)
        assert str(path) in answer.stderr, words
        assert words in answer.stderr, (words, answer.stderr)
    answer = replayed(tmp_path / "nowhere.trace")
    assert (answer.exit_code, "cannot be read: No such file" in answer.stderr) == (1, True)


def test_a_file_of_a_gigabyte_is_refused_before_much_of_it_is_read(
    tmp_path: Path, whole: bytes
) -> None:
    header = whole[: whole.index(b"dcsn")]
    frames = GIGABYTE // MAX_FRAME_BYTES
    for name, head, words in (
        ("nothing", b"", "neither a chunk nor the end"),
        ("one chunk", HEAD.pack(b"dcsn", GIGABYTE, 0, 0, 0, 1), "has a chunk of 1073741824 bytes"),
        ("chunks", HEAD.pack(b"dcsn", MAX_FRAME_BYTES, 1, 0, 0, 1), "the checksum of what"),
    ):
        # Sparse: it takes no room on the disk.
        path = tmp_path / f"{name}.trace"
        with path.open("wb") as file:
            file.write(header)
            for _ in range(frames if head else 0):
                file.write(head)
                file.seek(MAX_FRAME_BYTES, os.SEEK_CUR)
            file.write(END if head else b"")
            file.truncate(max(file.tell(), GIGABYTE))
        tracemalloc.start()
        for verb in (("replay", "--workers", "1", "--trace"), ("what-if", "--workers", "1")):
            answer = CliRunner().invoke(fedctl, [*verb, str(path)])
            assert answer.exit_code == 1, (name, answer.output)
            assert words in answer.stderr, (name, answer.stderr)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < GIGABYTE // 8, name


@given(st.data())
def test_whatever_is_changed_in_a_file_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "changed.trace"
    path.write_bytes(changed)
    answer = replayed(path)
    assert answer.exit_code in {0, 1, NOT_EQUAL}, answer.exception
    assert isinstance(answer.exception, SystemExit | None), answer.exception
    assert answer.exit_code == 0 or str(path) in answer.output


def test_bodies_that_were_made_by_somebody_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions, bodies = corpus()
    for trace in (b"", b"\x00", deflated(b"\xc1"), decisions[0].trace[:-9]):
        bad = msgspec.structs.replace(decisions[0], trace=trace)
        path = write_trace(tmp_path / "bad.trace", [bad], bodies)
        answer = replayed(path)
        assert answer.exit_code == 1
        assert "is damaged: decision decision-0" in answer.stderr, answer.output
    path = write_trace(tmp_path / "large.trace", decisions[:1], bodies)
    trace = TraceFile.opened(path)
    monkeypatch.setattr(bodies_module, "MAX_BYTES", 50)
    with pytest.raises(InvalidRequest, match="more than 50 bytes once it is decompressed"):
        replayed_frame(trace, DEFAULT_PROFILES, trace.frames[0])


def test_what_is_not_equal_is_told(tmp_path: Path) -> None:
    decisions, bodies = corpus()
    changed = msgspec.structs.replace(
        decisions[1], remainder=decisions[1].remainder + 1, name=HOSTILE
    )
    path = write_trace(tmp_path / "a.trace", [decisions[0], changed], bodies)
    answer = replayed(path)
    assert answer.exit_code == NOT_EQUAL
    assert "Equal:      1" in answer.stdout
    assert "remainder: " in answer.stdout
    assert all(map(is_printable, answer.stdout.splitlines()))
    # What they were made on was forgotten before they were exported.
    path = write_trace(tmp_path / "old.trace", decisions[:3], {})
    answer = replayed(path)
    assert answer.exit_code == 0
    assert "Inputs forgotten:  3" in answer.stdout


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.trace", [], {})
    for arguments in (
        ("replay",),
        ("replay", "some-id", "--trace", str(path)),
        ("replay", "some-id", "--workers", "2"),
        ("replay", "--trace", str(path), "--workers", "0"),
        ("trace", "export", str(tmp_path)),
        ("trace", "export", ""),
    ):
        assert CliRunner().invoke(fedctl, arguments).exit_code == 2, arguments
    for arguments, words in (
        (("replay", "--trace", str(tmp_path)), "cannot be read: Is a directory"),
        (("trace", "export", str(tmp_path / "no" / "x")), "cannot write"),
        (("trace", "export", str(path), "--since", "soon"), "--since: must be a span"),
    ):
        answer = CliRunner().invoke(fedctl, arguments)
        assert answer.exit_code == 1, arguments
        assert words in answer.stderr, answer.output
    assert [path.name for path in tmp_path.iterdir()] == ["a.trace"]
