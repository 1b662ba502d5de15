"""Lists: pages, versions, tokens that expire.

Must not know HTTP beyond the query it is given.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

from lab.kubeapi.resources import Document, Resource
from lab.kubeapi.selectors import selector
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
