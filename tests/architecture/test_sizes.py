"""The caps on size hold, and the counting of lines can fail."""

from __future__ import annotations

from pathlib import Path

from tools.check_sources import FILE_LINES, FUNCTION_LINES, handwritten, sizes


def function_of(lines: int) -> str:
    return "def long():\n" + "    pass\n" * (lines - 1)


def test_function_at_the_cap_passes_and_one_line_more_does_not() -> None:
    assert list(sizes(Path("a.py"), function_of(FUNCTION_LINES))) == []
    assert list(sizes(Path("a.py"), function_of(FUNCTION_LINES + 1))) == [
        "a.py:1: long has 61 lines, at most 60"
    ]


def test_file_at_the_cap_passes_and_one_line_more_does_not() -> None:
    assert list(sizes(Path("a.py"), "x = 1\n" * FILE_LINES)) == []
    assert list(sizes(Path("a.py"), "x = 1\n" * (FILE_LINES + 1))) == [
        "a.py: 501 lines, at most 500"
    ]


def test_generated_code_is_not_counted(tmp_path: Path) -> None:
    for name in ("federation/v1/a_pb2.py", "federation/model/a.py", "tests/unit/test_a.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    assert [str(path) for path in handwritten(tmp_path)] == [
        "federation/model/a.py",
        "tests/unit/test_a.py",
    ]
