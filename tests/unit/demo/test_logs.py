"""The demo fails where one of its programs logs an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.demo.programs import LoggedError, ProgramEnded, Programs
from federation.runtime.interruptions import Interruptions
from federation.runtime.log_errors import errors_in
from lab.patience import PATIENCE_SECONDS

LOG = """\
2026-11-28T07:00:00.000Z INFO    listening on=127.0.0.1:7443
2026-11-28T07:00:01.000Z WARNING an ERROR of somebody else why=ERROR
2026-11-28T07:00:02.000Z ERROR   duty not done: keep reports why=boom
Traceback (most recent call last):
  File "duties.py", line 1, in _try
TypeError: boom
2026-11-28T07:00:03.000Z INFO    still here
"""
JSON = '{"time": "2026-11-28T07:00:02Z", "level": "error", "message": "boom"}\n'


def test_an_error_is_shown_with_its_stack() -> None:
    (error,) = errors_in(LOG)
    assert error.startswith("2026-11-28T07:00:02.000Z ERROR   duty not done")
    assert error.endswith("TypeError: boom")
    assert errors_in(JSON) == [JSON.rstrip()]
    assert errors_in(JSON.replace("error", "warning")) == []


def test_an_expected_error_does_not_count_and_others_do() -> None:
    assert errors_in(LOG, ["keep reports"]) == []
    assert len(errors_in(LOG + JSON, ["keep reports"])) == 1


def test_faults_that_python_prints_count_too() -> None:
    assert errors_in("Future exception was never retrieved\nfuture: <Future>\n")
    assert errors_in("  Task was destroyed but it is pending!\n")


def test_the_demo_names_the_program_and_the_error(tmp_path: Path) -> None:
    with Programs(tmp_path, {}, Interruptions()) as programs:
        (tmp_path / "agent-member1.log").write_text("2026-11-28T07:00:00.000Z INFO    good\n")
        programs.require_clean_logs()
        (tmp_path / "control-plane.log").write_text(LOG)
        with pytest.raises(LoggedError, match=r"control-plane logged an error:\n.*keep reports"):
            programs.require_clean_logs()


def test_a_program_that_ended_has_not_started_though_another_server_answers(tmp_path: Path) -> None:
    with Programs(tmp_path, {}, Interruptions()) as programs:
        programs.start("control-plane", "-c", "raise SystemExit('the port is taken')")
        with pytest.raises(ProgramEnded, match="the port is taken"):
            programs.await_words("control-plane", "  API  ", PATIENCE_SECONDS)


def test_the_words_of_a_program_are_waited_for(tmp_path: Path) -> None:
    with Programs(tmp_path, {}, Interruptions()) as programs:
        programs.start("control-plane", "-uc", "print('  API  here'); input()")
        (tmp_path / "other.log").write_text("  API  elsewhere")
        with pytest.raises(ProgramEnded):
            programs.await_words("control-plane", "never said", PATIENCE_SECONDS)
        programs.await_words("control-plane", "  API  here", PATIENCE_SECONDS)
