"""What is wrong with a configuration: which field, which kind of fault, and when it is noticed.

Must not know any one format: every reader reports through these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from federation.model.errors import InvalidRequest, Violation


class Stage(Enum):
    """When kube-scheduler would refuse the document; each ends the reading."""

    DECODE = "decode"
    VALIDATE = "validate"
    PLUGIN = "plugin"


class FaultType(Enum):
    """The kinds of fault, by Kubernetes' names for them."""

    TYPE_INVALID = "FieldValueTypeInvalid"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Violation):
    """A broken rule with its kind; ``field`` is the path from the top of the document."""

    type: FaultType


class InvalidConfiguration(InvalidRequest):
    """The scoring configuration breaks a rule."""

    reason = "INVALID_SCORING_CONFIGURATION"

    def __init__(self, stage: Stage, faults: Iterable[Fault]) -> None:
        self.stage = stage
        self.faults: Sequence[Fault] = tuple(faults)
        super().__init__(self.faults)


def child(path: str, name: str) -> str:
    """The path of a field one level further in."""
    return f"{path}.{name}" if path else name
