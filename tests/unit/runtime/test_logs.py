from __future__ import annotations

import io
import json
import logging

from federation.runtime.log_fields import LogFormat, LogLevel, working_on
from federation.runtime.logs import configure_logging


def logged(form: LogFormat, level: LogLevel = LogLevel.INFO) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(stream, form=form, level=level)
    return stream


def test_a_json_line_holds_message_fields_and_exception() -> None:
    stream = logged(LogFormat.JSON)
    try:
        int("boom")
    except ValueError:
        logging.getLogger("federation.x").exception(
            "it %s", "broke", extra={"fields": {"cluster": "member1"}}
        )
    line = json.loads(stream.getvalue())
    assert line["message"] == "it broke"
    assert line["cluster"] == "member1"
    assert line["level"] == "error"
    assert "ValueError: invalid literal" in line["exception"]


def test_text_lines_carry_fields_behind_the_message() -> None:
    stream = logged(LogFormat.TEXT)
    logging.getLogger("federation.x").info("joined", extra={"fields": {"cluster": "member1"}})
    assert stream.getvalue().endswith("INFO    joined cluster=member1\n")


def test_lines_name_what_is_worked_on() -> None:
    stream = logged(LogFormat.JSON)
    with working_on(decision="d1", binding="shop/cart"):
        logging.getLogger("federation.x").warning("slow", extra={"fields": {"cluster": "member1"}})
    logging.getLogger("federation.x").warning("idle")
    within, after = map(json.loads, stream.getvalue().splitlines())
    assert (within["decision"], within["binding"]) == ("d1", "shop/cart")
    assert within["cluster"] == "member1"
    assert "decision" not in after


def test_libraries_are_heard_from_warnings_on() -> None:
    stream = logged(LogFormat.TEXT, LogLevel.DEBUG)
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("federation.x").debug("detail")
    assert "chatter" not in stream.getvalue()
    assert "detail" in stream.getvalue()


def test_a_value_begins_no_line_of_its_own() -> None:
    stream = logged(LogFormat.TEXT)
    forged = {"reason": "allocatable[a\n2026-01-01T00:00:00Z ERROR forged\0\x1b[2J]"}
    logging.getLogger("federation.x").info("refused", extra={"fields": forged})
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith(
        "refused reason=allocatable[a\\n2026-01-01T00:00:00Z ERROR forged\\x00\\x1b[2J]\n"
    )
