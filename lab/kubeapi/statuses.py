"""What the API server says when it refuses: Status objects by reason.

Must not decide when to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lab.kubeapi.resources import Document, Resource

NO_SNIFFING: Final = {"X-Content-Type-Options": "nosniff"}
MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
OLD_CONTINUE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class Refused(Exception):
    """A request is answered with this Status, and with these headers besides the usual ones."""

    def __init__(self, status: Document, **headers: str) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        self.headers = headers
        retry_after_seconds = status.get("details", {}).get("retryAfterSeconds")
        if retry_after_seconds is not None:
            self.headers["Retry-After"] = str(retry_after_seconds)

    @property
    def code(self) -> int:
        code: int = self.status["code"]
        return code


def failure(
    code: int,
    message: str,
    reason: str | None = None,
    *,
    details: Document | None = None,
    metadata: Document | None = None,
) -> Document:
    """A Status; ``reason`` and ``details`` are left out where the real server leaves them out."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata or {},
        "status": "Failure",
        "message": message,
    }
    if reason is not None:
        status["reason"] = reason
    if details is not None:
        status["details"] = details
    return {**status, "code": code}


def success(code: int) -> Document:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": code,
    }


def bad_request(message: str) -> Refused:
    return Refused(failure(400, message, "BadRequest"))


def internal(message: str) -> Refused:
    """An error the server has no better word for; it carries no reason."""
    return Refused(failure(500, message))


def not_found(resource: Resource, name: str) -> Refused:
    message = f'{resource.qualified} "{name}" not found'
    return Refused(failure(404, message, "NotFound", details=resource.details(name)))


def no_such_path() -> Refused:
    message = "the server could not find the requested resource"
    return Refused(failure(404, message, "NotFound", details={}))


def method_not_allowed() -> Refused:
    message = "the server does not allow this method on the requested resource"
    return Refused(failure(405, message, "MethodNotAllowed", details={}))


def already_exists(resource: Resource, name: str) -> Refused:
    message = f'{resource.qualified} "{name}" already exists'
    return Refused(failure(409, message, "AlreadyExists", details=resource.details(name)))


def conflict(details: Document, what: str, why: str) -> Refused:
    """``what`` is the thing as messages write it, before its name."""
    message = f'Operation cannot be fulfilled on {what} "{details["name"]}": {why}'
    return Refused(failure(409, message, "Conflict", details=details))


def modified(resource: Resource, name: str) -> Refused:
    return conflict(resource.details(name), resource.qualified, MODIFIED)


def expired(message: str, **metadata: str) -> Document:
    return failure(410, message, "Expired", metadata=dict(metadata))


def too_large_version(asked: int, current: int, *, with_retry: bool) -> Document:
    """The answer to a version that does not exist yet."""
    details: Document = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    }
    if with_retry:
        details["retryAfterSeconds"] = 1
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return failure(504, message, "Timeout", details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One fault of an invalid object."""

    reason: str
    message: str
    field: str


def invalid(what: str, name: str, details: Document, *causes: Cause) -> Refused:
    """422 with every fault: ``what`` is the kind as messages write it."""
    faults = [f"{cause.field}: {cause.message}" for cause in causes]
    text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    listed = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    message = f'{what} "{name}" is invalid: {text}'
    return Refused(failure(422, message, "Invalid", details={**details, "causes": listed}))


def invalid_options(kind: str, *causes: Cause) -> Refused:
    """422 about the query itself."""
    details = {"group": "meta.k8s.io", "kind": kind}
    return invalid(f"{kind}.meta.k8s.io", "", details, *causes)


def invalid_object(resource: Resource, name: str, *causes: Cause) -> Refused:
    group = {"group": resource.group} if resource.group else {}
    details = {"name": name, **group, "kind": resource.kind}
    return invalid(resource.qualified_kind, name, details, *causes)
