"""Files of cases: one JSON object a line in, one answer a line out, wrong lines included.

Must not know what a case asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Final

from federation.codec.document_files import STANDARD_INPUT
from federation.codec.documents import MAX_DOCUMENT_BYTES, read_json
from federation.model.errors import FederationError, InvalidRequest
from federation.runtime.terminal import json_text, say

Case = Mapping[str, Any]

_CODES: Final = {"INVALID_REQUEST": "INVALID_ARGUMENT"}


def answer_cases(path: str, answer: Callable[[Case], dict[str, Any]]) -> None:
    """Prints ``answer`` of every line with the case's id; a line that is wrong gives its error.

    Lines are read one at a time, so a file may be of any size; a line may have 16 MiB.
    """
    for number, line in enumerate(_lines(path), start=1):
        if line is None or line.strip():
            say(json_text(_answered(line, f"line {number}", answer)))


def objects_at(case: Case, name: str) -> list[Any]:
    """A list that the case must have."""
    value = case.get(name)
    if not isinstance(value, list):
        raise InvalidRequest.of(name, "is required, a list")
    return value


def options_at(case: Case) -> Mapping[str, Any]:
    """The options of a case; empty when there are none."""
    options = case.get("options")
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidRequest.of("options", "must be an object")
    return options


def _answered(
    line: bytes | None, source: str, answer: Callable[[Case], dict[str, Any]]
) -> dict[str, Any]:
    case_id = None
    try:
        case = _case(line, source)
        case_id = case.get("id")
        return {"id": case_id, **answer(case)}
    except FederationError as error:
        field = error.violations[0].field if isinstance(error, InvalidRequest) else ""
        code = _CODES.get(error.reason, error.reason)
        return {"id": case_id, "error": {"code": code, "message": error.message, "field": field}}


def _case(line: bytes | None, source: str) -> Case:
    if line is None:
        raise InvalidRequest.of(source, f"has more than {MAX_DOCUMENT_BYTES} bytes (16 MiB)")
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest.of(source, f"is not UTF-8 text (byte {error.start})") from error
    case = read_json(text, source=source)
    if not isinstance(case, Mapping):
        raise InvalidRequest.of(source, "must be a JSON object")
    return case


def _lines(path: str) -> Iterator[bytes | None]:
    """Lines, each None when it is longer than is read."""
    with closing(_opened(path)) as file:
        while line := file.readline(MAX_DOCUMENT_BYTES + 1):
            if len(line) <= MAX_DOCUMENT_BYTES:
                yield line
                continue
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_DOCUMENT_BYTES)
            yield None


def _opened(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InvalidRequest.of(path, f"cannot be read: {error.strerror}") from error
