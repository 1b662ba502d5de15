from __future__ import annotations

import json
import logging
import sys

import click
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from federation.model.errors import InvalidRequest, Unavailable
from federation.model.printable import is_printable
from federation.runtime.terminal import (
    OneLineFormatter,
    Program,
    error_lines,
    json_text,
    say,
)
from federation.runtime.yaml_texts import yaml_text

HOSTILE = "a\x1b[2J\u202eb\nc\x85d"
values = st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def is_safe(text: str) -> bool:
    return all(map(is_printable, text.split("\n")))


@given(values)
def test_documents_are_printable_and_mean_the_same(value: object) -> None:
    assert json.loads(json_text(value)) == value
    assert is_safe(json_text(value, indent=2))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_yaml_is_printable_and_means_the_same(text: str) -> None:
    written = yaml_text({"key": text, text: ["é", text]})
    assert is_safe(written)
    assert yaml.safe_load(written) == {"key": text, text: ["é", text]}
    assert "é" in written


def test_errors_of_arguments_and_of_answers_are_printable() -> None:
    @click.group(cls=Program)
    def program() -> None:
        """Fails."""

    @program.command()
    @click.argument("name")
    def fail(name: str) -> None:
        say(name)
        raise click.UsageError(name)

    result = CliRunner().invoke(program, ["fail", HOSTILE])
    assert result.exit_code == 2
    assert is_safe(result.output)
    assert "\\x1b[2J" in result.stdout
    assert "\\u202eb" in result.stderr
    assert CliRunner().invoke(program, [HOSTILE]).exit_code == 2
    assert is_safe(CliRunner().invoke(program, [HOSTILE]).output)


def test_a_message_begins_no_line_that_looks_like_another() -> None:
    assert error_lines(Unavailable("a\nb\x1b")) == ["error: a", "error: b\\x1b"]
    assert error_lines(InvalidRequest.of("f", "a\nb")) == ["error: f: a\\nb"]


def test_a_record_is_one_line_and_its_exception_is_indented() -> None:
    formatter = OneLineFormatter("%(levelname)s %(message)s")
    try:
        int("a\n2026-01-01 ERROR forged\x1b")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.INFO, "f", 1, "told %s", (HOSTILE,), sys.exc_info()
        )
    first, *rest = formatter.format(record).split("\n")
    assert first == "INFO told a\\x1b[2J\\u202eb\\nc\\x85d"
    assert rest
    assert all(line.startswith("  ") for line in rest)
    assert is_safe("\n".join(rest))
