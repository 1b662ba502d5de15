"""Recorded exchanges with a real API server: read, asked again elsewhere, compared.

Must not know whom it asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from lab.patience import PATIENCE_SECONDS

EXCHANGES: Final = Path(__file__).parent / "exchanges"
READ_SECONDS: Final = PATIENCE_SECONDS
# What the two answers must agree in; the others name the request, not the answer.
COMPARED_HEADERS: Final = (
    "Cache-Control",
    "Content-Type",
    "Retry-After",
    "Warning",
    "X-Content-Type-Options",
)
PRESENT_HEADERS: Final = (
    "Audit-Id",
    "X-Kubernetes-Pf-Flowschema-Uid",
    "X-Kubernetes-Pf-Prioritylevel-Uid",
)
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# Field ownership is written by the server about its clients; tokens are opaque.
_IGNORED_KEYS: Final = frozenset({"managedFields", "uid"})
_OPAQUE_KEYS: Final = frozenset({"continue"})

Lines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One recorded request and its answer."""

    id: str
    auth: str
    request: Mapping[str, Any]
    response: Mapping[str, Any]

    @property
    def lines(self) -> Lines | None:
        """The events of a watch, None for other requests."""
        stream = self.response.get("stream")
        return None if stream is None else [each["line"] for each in stream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back this time: ``body`` is a document or text, ``lines`` those of a watch."""

    status: int
    headers: Mapping[str, str]
    body: Any = None
    lines: Lines | None = None


def exchanges(file: str) -> Iterator[Exchange]:
    """The exchanges of one file, in the order they were made."""
    for line in (EXCHANGES / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        yield Exchange(**{key: record[key] for key in ("id", "auth", "request", "response")})


def recorded(file: str, id_: str) -> Exchange:
    return next(each for each in exchanges(file) if each.id == id_)


class Replay:
    """Asks again, with names and uids that differ by chance carried over from answer to request."""

    def __init__(self, url: str, token_of: Callable[[Exchange], str | None]) -> None:
        self._url = url
        self._token_of = token_of
        self._http = urllib3.PoolManager(retries=False, timeout=READ_SECONDS)
        self._carried: dict[str, str] = {}

    def close(self) -> None:
        self._http.clear()

    def differences(self, exchange: Exchange, meanwhile: Callable[[], object]) -> list[str]:
        """How the answer differs. ``meanwhile`` is done once a watch is open."""
        answered = self._ask(exchange, meanwhile)
        before = exchange.response
        self._carry(before.get("body"), answered.body)
        expected = self._substituted(before.get("body"))
        found = []
        if answered.status != before["status"]:
            found.append(f"status: recorded {before['status']}, answered {answered.status}")
        found += _header_differences(before["headers"], answered.headers)
        if exchange.lines is None and expected is not None:
            found += _differences(_plain(expected), _plain(answered.body), "body")
        elif exchange.lines is not None:
            lines = self._substituted(exchange.lines)
            found += _differences(_plain(lines), _plain(answered.lines), "stream")
        return found

    def _ask(self, exchange: Exchange, meanwhile: Callable[[], object]) -> Answered:
        request = self._substituted(exchange.request)
        path, _, inline_query = request["path"].partition("?")
        query = urlencode(request["query"]) or inline_query
        headers = dict(request["headers"])
        headers.pop("Authorization", None)
        token = self._token_of(exchange)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body = request.get("body")
        response = self._http.request(
            request["method"],
            f"{self._url}{path}?{query}",
            headers=headers,
            body=body if isinstance(body, str | None) else json.dumps(body),
            preload_content=False,
        )
        try:
            if exchange.lines is None:
                return _read(response)
            meanwhile()
            wanted = len(exchange.lines) if exchange.response["ended_by"] == "client" else None
            return Answered(
                status=response.status,
                headers=response.headers,
                lines=[json.loads(line) for line in _lines(response, wanted)],
            )
        finally:
            response.close()

    def _carry(self, recorded: Any, answered: Any) -> None:
        """Learn what the same uids and generated names are called here."""
        if not isinstance(recorded, dict) or not isinstance(answered, dict):
            return
        for old, new in zip(_given_names(recorded), _given_names(answered), strict=False):
            self._carried[old] = new

    def _substituted(self, value: Any) -> Any:
        text = json.dumps(value)
        for old, new in self._carried.items():
            text = text.replace(old, new)
        return json.loads(text)


def _given_names(document: dict[str, Any]) -> Iterator[str]:
    metadata = document.get("metadata", {})
    if "uid" in metadata:
        yield metadata["uid"]
    if "generateName" in metadata:
        yield metadata["name"]
    elif document.get("reason") == "Invalid" and "name" in document["details"]:
        yield document["details"]["name"]


def _read(response: urllib3.BaseHTTPResponse) -> Answered:
    text = response.read().decode()
    is_json = response.headers["Content-Type"] == "application/json"
    body = json.loads(text) if is_json else text
    return Answered(status=response.status, headers=response.headers, body=body)


def _lines(response: urllib3.BaseHTTPResponse, wanted: int | None) -> Iterator[bytes]:
    """Whole lines, until the end or until there are ``wanted``."""
    rest, given = b"", 0
    for part in response.stream(65_536):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
            given += 1
            if given == wanted:
                return


def _header_differences(recorded: Mapping[str, str], answered: Mapping[str, str]) -> list[str]:
    found = [
        f"{name}: recorded {recorded.get(name)!r}, answered {answered.get(name)!r}"
        for name in COMPARED_HEADERS
        if recorded.get(name) != answered.get(name)
    ]
    return found + [
        f"{name}: recorded {name in recorded}, answered {name in answered}"
        for name in PRESENT_HEADERS
        if (name in recorded) != (name in answered)
    ]


def _plain(value: Any) -> Any:
    """Without what differs by chance: times, uids, field ownership, the insides of tokens."""
    if isinstance(value, dict):
        return {
            key: "(opaque)" if key in _OPAQUE_KEYS else _plain(each)
            for key, each in value.items()
            if key not in _IGNORED_KEYS
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, str):
        return _UID.sub("(uid)", _TIME.sub("(time)", value))
    return value


def _differences(recorded: Any, answered: Any, path: str) -> list[str]:
    if isinstance(recorded, dict) and isinstance(answered, dict):
        return [
            difference
            for key in sorted({*recorded, *answered})
            for difference in _differences(
                recorded.get(key, "(absent)"), answered.get(key, "(absent)"), f"{path}.{key}"
            )
        ]
    if isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
        return [
            difference
            for position, (old, new) in enumerate(zip(recorded, answered, strict=True))
            for difference in _differences(old, new, f"{path}[{position}]")
        ]
    if recorded == answered:
        return []
    return [f"{path}: recorded {_short(recorded)}, answered {_short(answered)}"]


def _short(value: Any) -> str:
    return json.dumps(value)[:300]
