"""Reasons as values: a code and typed parameters. They become text where they leave.

Pure. Must not hold sentences: ``reason_texts`` has them. Code compares codes, never texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self, TypeAlias, Union, final

from federation.model.placement import binding_key
from federation.model.reason_codes import ReasonCode
from federation.model.reason_texts import SEPARATOR, TEMPLATES, Words


@dataclass(frozen=True, slots=True)
class BindingRef:
    """The name of a binding, with its namespace; callers of other namespaces must not read it."""

    namespace: str
    name: str

    @classmethod
    def of(cls, key: str) -> Self:
        """Read a key as ``binding_key`` writes it."""
        namespace, _, name = key.rpartition("/")
        return cls(namespace, name)

    def __str__(self) -> str:
        return binding_key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class ClusterName:
    """The name of a member cluster."""

    name: str


@dataclass(frozen=True, slots=True)
class Amount:
    """A count, or an amount of a resource in base units."""

    number: int


@dataclass(frozen=True, slots=True)
class Word:
    """A name out of a document: a resource, a label key, a taint, an API, a gang, a plug-in."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence of a plug-in, an agent or a person, or one that was stored before."""

    sentence: str


Parameter: TypeAlias = Union[
    BindingRef, ClusterName, Amount, Word, Text, "Reason", "tuple[Parameter, ...]"
]


@final
class Reason:
    """One fact, or several clauses; ``str`` renders it in English, once.

    A reason without clauses is false: there is nothing to explain. It is no dataclass, because
    msgspec would store that as a map: encoders need a hook that says in which form it is stored.
    """

    __slots__ = ("_hash", "_text", "code", "parameters")
    __match_args__ = ("code", "parameters")

    def __init__(self, code: ReasonCode, parameters: tuple[Parameter, ...] = ()) -> None:
        self.code: Final = code
        self.parameters: Final = parameters
        # Reasons of a thousand clusters are counted by value, and mostly are few values.
        self._hash: Final = hash((code.value, parameters))
        self._text: str | None = None

    @classmethod
    def of(cls, code: ReasonCode, *parameters: Parameter) -> Self:
        """Make one of its parameters in order."""
        return cls(code, parameters)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reason):
            return NotImplemented
        return self is other or (self.code, self.parameters) == (other.code, other.parameters)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Reason({self.code}, {self.parameters})"

    def __bool__(self) -> bool:
        return bool(self.parameters) or self.code is not ReasonCode.CLAUSES

    def __str__(self) -> str:
        if self._text is None:
            template = TEMPLATES[self.code]
            words = (_words(parameter) for parameter in self.parameters)
            self._text = template if isinstance(template, str) else template(*words)
        return self._text

    def __reduce__(self) -> tuple[type[Reason], tuple[ReasonCode, tuple[Parameter, ...]]]:
        # Hashes of strings differ between processes.
        return Reason, (self.code, self.parameters)


NO_REASON: Final = Reason(ReasonCode.CLAUSES)
NO_REASONS: Final[Mapping[int, Reason]] = {}


def clauses_of(reason: Reason) -> tuple[Reason, ...]:
    """Return the facts of a reason in their order."""
    if reason.code is not ReasonCode.CLAUSES:
        return (reason,)
    return tuple(clause for clause in reason.parameters if isinstance(clause, Reason))


def joined(*reasons: Reason) -> Reason:
    """Return one reason with the clauses of all of these."""
    clauses = tuple(clause for reason in reasons for clause in clauses_of(reason))
    return clauses[0] if len(clauses) == 1 else Reason(ReasonCode.CLAUSES, clauses)


def has_code(reason: Reason, code: ReasonCode) -> bool:
    """Whether one of its clauses has the code."""
    return any(clause.code is code for clause in clauses_of(reason))


def without_code(reason: Reason, code: ReasonCode) -> Reason:
    """Return the reason without its clauses of that code."""
    return joined(*(clause for clause in clauses_of(reason) if clause.code is not code))


def counted(reasons: Iterable[tuple[Reason, int]]) -> Parameter:
    """Return how often each reason came, as a parameter."""
    return tuple((reason, Amount(count)) for reason, count in reasons)


def texts_of(reasons: Mapping[int, Reason]) -> dict[int, str]:
    """Return reasons by position as they are stored and sent."""
    return {position: str(reason) for position, reason in reasons.items()}


# The notes of a thousand clusters in a trace are few texts.
@lru_cache(maxsize=1024)
def stored_reason(text: str) -> Reason:
    """Read a reason that was stored as text.

    What a replay has to tell apart is recognised; everything else is one sentence.
    """
    set_aside = str(SET_ASIDE)
    if text == set_aside:
        return SET_ASIDE
    if text.startswith(set_aside + SEPARATOR):
        return joined(SET_ASIDE, stored_reason(text[len(set_aside + SEPARATOR) :]))
    return Reason.of(ReasonCode.STORED_TEXT, Text(text)) if text else NO_REASON


def stored_reasons(texts: Mapping[int, str]) -> dict[int, Reason]:
    """Read reasons by position."""
    return {position: stored_reason(text) for position, text in texts.items()}


def says_the_same(one: Reason, other: Reason) -> bool:
    """Whether two reasons, either of which may have been stored as text, read the same."""
    return one == other or str(one) == str(other)


def goes_on_from(longer: Reason, beginning: Reason) -> bool:
    """Whether a reason, which may have been stored as text, has all of another and then more."""
    return bool(beginning) and str(longer).startswith(f"{beginning}{SEPARATOR}")


SET_ASIDE: Final = Reason(ReasonCode.SET_ASIDE)


def _words(parameter: Parameter) -> Words:
    match parameter:
        case Amount():
            return parameter.number
        case ClusterName() | Word():
            return parameter.name
        case Text():
            return parameter.sentence
        case tuple():
            return tuple(_words(part) for part in parameter)
        case BindingRef() | Reason():
            return str(parameter)
