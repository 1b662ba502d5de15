"""Gangs: who of one is here, what it waits for, and who cannot join it.

Pure. Must not know how members are stored, nor decide about them.
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

_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMember:
    """A binding of a gang of ``size``, as it is stored. Who ``waits`` for its place has none yet;
    who was suspended before it had one is not here.
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
    """What all members wait for, NO_REASON where the gang is complete."""
    here = sum(each.is_here for each in members)
    if here >= gang.size:
        return NO_REASON
    amounts = Amount(here), Amount(gang.size)
    return Reason.of(ReasonCode.GANG_INCOMPLETE, *amounts, Word(gang.name))


def missing(gang: Gang, members: Sequence[GangMember]) -> Reason:
    """Who an incomplete gang lacks, beside whom."""
    here = [each.name for each in members if each.is_here]
    suspended = [each.name for each in members if not each.is_here]
    return Reason.of(
        ReasonCode.GANG_LACKS_MEMBERS,
        Amount(gang.size - len(here)),
        Word(gang.name),
        *_first_names(here),
        *_first_names(suspended),
    )


class Roster:
    """The members of one gang, as more of them join."""

    def __init__(self, members: Iterable[GangMember] = ()) -> None:
        self._members: dict[str, GangMember] = {}
        # Mostly one size: a thousand may join at once, and each looks at all others.
        self._by_size: dict[int, dict[str, None]] = {}
        for each in members:
            self.add(each)

    @property
    def members(self) -> Sequence[GangMember]:
        return tuple(self._members.values())

    def add(self, member: GangMember) -> None:
        """In place of the one of its name, where there is one."""
        before = self._members.get(member.name)
        if before is not None:
            del self._by_size[before.size][before.name]
        self._members[member.name] = member
        self._by_size.setdefault(member.size, {})[member.name] = None

    def refusal_of(self, joining: GangMember) -> Violation | None:
        """Why one that has no place yet cannot join the others."""
        for size, same in self._by_size.items():
            odd = next((name for name in same if name != joining.name), None)
            if size != joining.size and odd is not None:
                rule = f"is {joining.size}, and {size} in binding {odd} of the same gang"
                return Violation(field="spec.gang.size", rule=rule)
        if len(self._members) - (joining.name in self._members) >= joining.size:
            others = _named([name for name in self._members if name != joining.name])
            rule = f"has its {joining.size} members already: {others}"
            return Violation(field="spec.gang.name", rule=rule)
        return None


def unplaced_reason(gang: Gang, name: str, why: Reason, more: int) -> Reason:
    """What members are told that would have had room, because of another one."""
    member = Word(name)
    first, *_ = clauses_of(why) or (NO_REASON,)
    scarce = Reason.of(ReasonCode.ROOM_FOR_MEMBER, member, first)
    return joined(
        Reason.of(ReasonCode.GANG_MEMBER_UNPLACED, member, Word(gang.name), Amount(more)),
        Reason.of(ReasonCode.SHORT_OF, scarce),
    )


def _first_names(names: Sequence[str]) -> tuple[Parameter, Parameter]:
    """The first names, and how many there are beyond them."""
    first = names[:_MOST_NAMED]
    return tuple(map(Word, first)), Amount(len(names) - len(first))


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
