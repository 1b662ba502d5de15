"""The error tree: one class per case to which a caller can react.

Must not know any transport: ``federation.rpc.status`` maps classes to codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

# The reason for refusing a session that begins in the future; the agent begins an earlier one.
EPOCH_AHEAD: Final = "EPOCH_AHEAD"
# Its fact: the control plane's clock, in Unix seconds.
SERVER_TIME: Final = "serverTime"
NO_FACTS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: a field path such as ``spec.replicas``, and the rule."""

    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" if self.field else self.rule

    def under(self, prefix: str) -> Violation:
        """Return the violation with its path below a prefix."""
        joint = "" if not self.field or self.field.startswith("[") or not prefix else "."
        return Violation(field=f"{prefix}{joint}{self.field}", rule=self.rule)


class FederationError(Exception):
    """Something went wrong in fedsched."""

    reason = "INTERNAL"

    def __init__(
        self,
        message: str | None = None,
        *,
        reason: str | None = None,
        facts: Mapping[str, str] = NO_FACTS,
    ) -> None:
        """``facts`` are for programs what the message is for people, by name."""
        # Without a message, the first paragraph of the class docstring is the message.
        summary, _, _ = (type(self).__doc__ or "").partition("\n\n")
        super().__init__(message or " ".join(summary.split()))
        self.facts = facts
        if reason is not None:
            self.reason = reason

    @property
    def message(self) -> str:
        return str(self.args[0])


class InvalidRequest(FederationError):
    """The request breaks a rule."""

    reason = "INVALID_REQUEST"

    def __init__(self, violations: Iterable[Violation], *, reason: str | None = None) -> None:
        self.violations: Sequence[Violation] = tuple(violations)
        super().__init__("; ".join(map(str, self.violations)), reason=reason)

    @classmethod
    def of(cls, field: str, rule: str, *, reason: str | None = None) -> InvalidRequest:
        return cls([Violation(field=field, rule=rule)], reason=reason)


class NotFound(FederationError):
    """The named object does not exist."""

    reason = "NOT_FOUND"


class AlreadyExists(FederationError):
    """An object of that name exists already."""

    reason = "ALREADY_EXISTS"


class Conflict(FederationError):
    """The object was changed by somebody else meanwhile; read it again and retry."""

    reason = "CONFLICT"


class PreconditionFailed(FederationError):
    """The object is in a state that does not allow this."""

    reason = "PRECONDITION_FAILED"


class PluginFailed(PreconditionFailed):
    """A scheduler plugin raised, or answered something that it may not answer."""

    reason = "PLUGIN_FAILED"


class NotPlacedTogether(PreconditionFailed):
    """Another item of the atomic batch was not placed, so that none was."""

    reason = "NOT_PLACED_TOGETHER"


class Unauthenticated(FederationError):
    """The call carries no valid credential."""

    reason = "UNAUTHENTICATED"


class PermissionRefused(FederationError):
    """The credential does not allow this."""

    reason = "PERMISSION_REFUSED"


class LimitExceeded(FederationError):
    """The request is larger, or came more often, than the server allows."""

    reason = "LIMIT_EXCEEDED"


class Unavailable(FederationError):
    """Something this depends on (the database, an agent) cannot be reached now; retry later.

    To a client, ``is_answer``: the control plane was reached, and says so itself.
    """

    reason = "UNAVAILABLE"
    is_answer = False


class DeadlineMissed(FederationError):
    """The deadline of the caller passed before the answer was ready."""

    reason = "DEADLINE_MISSED"
