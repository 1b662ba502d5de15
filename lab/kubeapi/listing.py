"""How objects are selected, listed page by page, and shown.

Must not write.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lab.kubeapi.resources import Document, Resource
from lab.kubeapi.state import Cluster
from lab.kubeapi.statuses import (
    OLD_CONTINUE,
    Cause,
    Refused,
    bad_request,
    expired,
    internal,
    invalid_options,
)

Selector = Callable[[Document], bool]
Test = Callable[[dict[str, str]], bool]

_METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")
_SET: Final = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*(?:,|$)")
_OPEN_SET: Final = re.compile(r"\s*[^\s!=,()]+\s+(?:in|notin)\s*\([^()]*$")
_EQUALITY: Final = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*(?:,|$)")
_EXISTENCE: Final = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*(?:,|$)")


def selector(resource: Resource, fields: str, labels: str) -> Selector:
    """Both selectors in one. Raises Refused (400) with the server's words."""
    by_field = _field_tests(resource, fields)
    by_label = _label_tests(labels)

    def matches(document: Document) -> bool:
        present = document["metadata"].get("labels") or {}
        return all(
            (field_value(resource, document, path) == wanted) is equal
            for path, equal, wanted in by_field
        ) and all(test(present) for test in by_label)

    return matches


def field_value(resource: Resource, document: Document, path: str) -> str:
    """A field as selectors compare it: text, booleans in lower case, defaults where absent."""
    value: object = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return resource.fields.get(path, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field_tests(resource: Resource, text: str) -> list[tuple[str, bool, str]]:
    tests = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"([^=!]+)(!=|==|=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, wanted = match.groups()
        if path not in resource.fields and path not in _METADATA_FIELDS:
            raise bad_request(f"field label not supported: {path}")
        tests.append((path, operator != "!=", wanted))
    return tests


def _label_tests(text: str) -> list[Test]:
    tests: list[Test] = []
    rest = text
    while rest.strip():
        if match := _SET.match(rest):
            key, operator, listed = match.groups()
            values = frozenset(value.strip() for value in listed.split(","))
            tests.append(_is_in(key, values) if operator == "in" else _not_in(key, values))
        elif match := _EQUALITY.match(rest):
            key, operator, value = match.groups()
            values = frozenset({value})
            tests.append(_not_in(key, values) if operator == "!=" else _is_in(key, values))
        elif _OPEN_SET.match(rest):
            raise bad_request("unable to parse requirement: found '', expected: ',' or ')'")
        elif match := _EXISTENCE.match(rest):
            absent, key = match.groups()
            tests.append(_lacks(key) if absent else _has(key))
        else:
            raise bad_request(f"unable to parse requirement: {rest!r}")
        rest = rest[match.end() :]
    return tests


def _is_in(key: str, values: frozenset[str]) -> Test:
    return lambda labels: labels.get(key) in values


def _not_in(key: str, values: frozenset[str]) -> Test:
    return lambda labels: labels.get(key) not in values


def _has(key: str) -> Test:
    return lambda labels: key in labels


def _lacks(key: str) -> Test:
    return lambda labels: key not in labels


Query = Mapping[str, str]
# The inconsistent token goes on at the version of then.
PRESENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a list, ready to be written."""

    items: list[Document]
    metadata: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Where a page starts: a version and the key it comes after."""

    version: int
    start: str = ""


def version_asked(query: Query) -> int | None:
    """resourceVersion as a number; None when unset. Raises Refused (500), as the server does."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdigit():
        raise internal(
            f'resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def list_page(cluster: Cluster, resource: Resource, namespace: str, query: Query) -> Page:
    """One page. The caller has waited for a version that is still to come."""
    limit = _limit(query)
    position = _position(cluster, resource, query)
    if query.get("resourceVersion") == "0":
        # Served from the watch cache, which knows no pages.
        limit = 0
    matches = selector(resource, query.get("fieldSelector", ""), query.get("labelSelector", ""))
    prefix = f"{namespace}/" if namespace else ""
    left = [
        (key, document)
        for key, document in cluster.state(resource, position.version).items()
        if key.startswith(prefix) and key.removeprefix(prefix) >= position.start
        if matches(document)
    ]
    metadata: Document = {"resourceVersion": str(position.version)}
    if limit and len(left) > limit:
        last, _ = left[limit - 1]
        metadata["continue"] = _token(position.version, last.removeprefix(prefix) + "\0")
        if not query.get("fieldSelector") and not query.get("labelSelector"):
            metadata["remainingItemCount"] = len(left) - limit
        left = left[:limit]
    return Page(items=[document for _, document in left], metadata=metadata)


def _limit(query: Query) -> int:
    text = query.get("limit", "0")
    if not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _position(cluster: Cluster, resource: Resource, query: Query) -> _Position:
    _check_options(query)
    token = query.get("continue")
    asked = version_asked(query)
    if token:
        if asked is not None:
            raise bad_request("specifying resource version is not allowed when using continue")
        return _resumed(cluster, token)
    if asked and query.get("resourceVersionMatch") == "Exact":
        if asked < cluster.compacted_version:
            raise Refused(expired("The resourceVersion for the provided list is too old."))
        return _Position(version=asked)
    return _Position(version=cluster.read_consistently(resource))


def _check_options(query: Query) -> None:
    causes = []
    if query.get("resourceVersionMatch") and not query.get("resourceVersion"):
        message = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(
            Cause(reason="FieldValueForbidden", message=message, field="resourceVersionMatch")
        )
    if "sendInitialEvents" in query:
        message = "Forbidden: sendInitialEvents is forbidden for list"
        causes.append(
            Cause(reason="FieldValueForbidden", message=message, field="sendInitialEvents")
        )
    if causes:
        raise invalid_options("ListOptions", *causes)


def _resumed(cluster: Cluster, token: str) -> _Position:
    try:
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = content["rv"], content["start"].lstrip("/")
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if version == PRESENT:
        return _Position(version=cluster.version, start=start)
    if version < cluster.compacted_version:
        raise Refused(expired(OLD_CONTINUE, **{"continue": _token(PRESENT, start)}))
    return _Position(version=version, start=start)


def _token(version: int, start: str) -> str:
    content = json.dumps(
        {"v": "meta.k8s.io/v1", "rv": version, "start": f"/{start}"}, separators=(",", ":")
    )
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
