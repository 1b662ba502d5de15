"""Gangs: their members, what an incomplete gang waits for, and refusals to join one.

Pure. Must not know how members are stored, nor decide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from federation.model.errors import Violation
from federation.model.placement import Binding, Gang
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Parameter, Reason, Word, clauses_of, joined
from federation.model.waiting import Wait

_MAX_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMember:
    """A stored binding of a gang of ``size``.

    ``waits``: it has no place yet. ``is_here``: it counts for the gang; a binding that was
    suspended before it had a place does not.
    """

    name: str
    size: int
    waits: bool
    is_here: bool = True

    @classmethod
    def of(cls, binding: Binding, wait: Wait | None) -> GangMember:
        is_suspended = binding.suspended or (wait is not None and wait.is_suspended)
        return cls(
            name=binding.name,
            size=binding.gang.size if binding.gang else 0,
            waits=not binding.clusters,
            is_here=bool(binding.clusters) or not is_suspended,
        )


def gate_of(gang: Gang, members: Sequence[GangMember]) -> Reason:
    """Return why all members wait, NO_REASON where the gang is complete."""
    count = sum(member.is_here for member in members)
    if count >= gang.size:
        return NO_REASON
    amounts = Amount(count), Amount(gang.size)
    return Reason.of(ReasonCode.GANG_INCOMPLETE, *amounts, Word(gang.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class GangEntry:
    """The wait of a gang's members without a place: they are tried as one, by the ``first``.

    With a ``gate`` they are not tried, and ``lacks`` says why.
    """

    first: str
    priority: int
    gate: Reason
    lacks: Reason
    timeout_seconds: int | None

    @classmethod
    def of(cls, waiting: Sequence[Binding], members: Sequence[GangMember]) -> GangEntry:
        """Return the wait of members without a place, in the order of their names, at least one.

        ``members`` are all of the gang.
        """
        gangs = [binding.gang for binding in waiting if binding.gang]
        timeouts = [gang.timeout_seconds for gang in gangs if gang.timeout_seconds is not None]
        gate = gate_of(gangs[0], members)
        return cls(
            first=waiting[0].name,
            priority=max(binding.priority for binding in waiting),
            gate=gate,
            lacks=missing(gangs[0], members) if gate else NO_REASON,
            timeout_seconds=min(timeouts, default=None),
        )


def missing(gang: Gang, members: Sequence[GangMember]) -> Reason:
    """Return how many members an incomplete gang lacks, with the names of those present."""
    present = [member.name for member in members if member.is_here]
    suspended = [member.name for member in members if not member.is_here]
    return Reason.of(
        ReasonCode.GANG_LACKS_MEMBERS,
        Amount(gang.size - len(present)),
        Word(gang.name),
        *_first_names(present),
        *_first_names(suspended),
    )


class Roster:
    """The members of one gang, as more of them join."""

    def __init__(self, members: Iterable[GangMember] = ()) -> None:
        self._members: dict[str, GangMember] = {}
        # Names by size, usually one size: a member is compared with one other of each size, because
        # a thousand members may join at once.
        self._by_size: dict[int, dict[str, None]] = {}
        for member in members:
            self.add(member)

    @property
    def members(self) -> Sequence[GangMember]:
        return tuple(self._members.values())

    def add(self, member: GangMember) -> None:
        """Add a member; one of the same name is replaced."""
        replaced = self._members.get(member.name)
        if replaced is not None:
            del self._by_size[replaced.size][replaced.name]
        self._members[member.name] = member
        self._by_size.setdefault(member.size, {})[member.name] = None

    def refusal_of(self, joining: GangMember) -> Violation | None:
        """Return why a binding without a place cannot join the members; None if it can."""
        for size, same in self._by_size.items():
            odd = next((name for name in same if name != joining.name), None)
            if size != joining.size and odd is not None:
                rule = f"is {joining.size}, and {size} in binding {odd} of the same gang"
                return Violation(field="spec.gang.size", rule=rule)
        if len(self._members) - (joining.name in self._members) >= joining.size:
            members = _named([name for name in self._members if name != joining.name])
            rule = f"has its {joining.size} members already: {members}"
            return Violation(field="spec.gang.name", rule=rule)
        return None


def unplaced_reason(gang: Gang, name: str, why: Reason, further: int) -> Reason:
    """Return the reason for members that fit while member ``name`` did not.

    ``further`` counts the other members that did not fit.
    """
    member = Word(name)
    first, *_ = clauses_of(why) or (NO_REASON,)
    scarce = Reason.of(ReasonCode.ROOM_FOR_MEMBER, member, first)
    return joined(
        Reason.of(ReasonCode.GANG_MEMBER_UNPLACED, member, Word(gang.name), Amount(further)),
        Reason.of(ReasonCode.SHORT_OF, scarce),
    )


def _first_names(names: Sequence[str]) -> tuple[Parameter, Parameter]:
    """Return the first names, and how many follow."""
    first = names[:_MAX_NAMED]
    return tuple(map(Word, first)), Amount(len(names) - len(first))


def _named(names: Sequence[str]) -> str:
    further = len(names) - _MAX_NAMED
    shown = ", ".join(names[:_MAX_NAMED])
    return f"{shown} and {further} more" if further > 0 else shown
