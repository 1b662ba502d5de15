"""From a request to a decision with its promises: one binding after the other on a working copy.

Plain functions of their arguments, for one thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from federation.capacity.reserve import Refused
from federation.model.errors import FederationError
from federation.model.placement import Binding, Certificate
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.promisable import OVERCOMMITTED, without_room
from federation.scheduler.scarcity import with_scarcity
from federation.services.journal_ports import Holding
from federation.services.ports import Peers, StoredBinding
from federation.services.scheduling.decide import PLACED, Considered, decide
from federation.services.scheduling.working_copy import Kept, Wish, Working
from federation.services.scheduling.write import Key, Ready
from federation.services.values import DecisionRecord, Verdict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A binding that is to be decided under ``id``, with what the store knows of it.

    ``newest`` is the last decision, read only where the candidate says nothing new. ``holding`` is
    where it holds something by the store: this control plane may not have heard of it yet.
    ``adopts``: where ``candidate.clusters`` say it runs is news.
    """

    id: str
    profile: Profile
    known: StoredBinding | None
    candidate: Binding
    peers: Peers
    newest: DecisionRecord | None
    holding: Holding
    adopts: bool

    @property
    def key(self) -> Key:
        return self.candidate.namespace, self.candidate.name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """A draft with its decision; ``wish`` and ``kept`` are None where nothing is to be reserved."""

    draft: Draft
    verdict: Verdict
    wish: Wish | None = None
    kept: Kept | None = None

    @property
    def key(self) -> Key:
        return self.draft.key

    @property
    def considered(self) -> Considered:
        draft = self.draft
        return Considered(
            known=draft.known, candidate=draft.candidate, verdict=self.verdict, newest=draft.newest
        )

    @property
    def ready(self) -> Ready:
        draft = self.draft
        return Ready(
            id=draft.id,
            known=draft.known,
            candidate=draft.candidate,
            verdict=self.verdict,
            kept=self.kept,
        )

    @property
    def standing(self) -> DecisionRecord | None:
        """The newest decision, where this one says the same and what it reserved is held still."""
        considered, draft = self.considered, self.draft
        standing = considered.standing
        if standing is None or not considered.is_placed:
            return standing
        wanted = self.wish.shares.keys() if self.wish else set()
        is_held = set(draft.holding.clusters) == set(wanted) and not draft.holding.has_expired
        return standing if is_held and not draft.adopts else None

    @property
    def is_whole(self) -> bool:
        """Whether every replica got room."""
        return self.kept is not None and self.verdict.decision.outcome is Outcome.SCHEDULED

    @property
    def touched(self) -> frozenset[str]:
        """The clusters whose ledgers it changes."""
        return frozenset(self.kept.clusters) if self.kept else frozenset()


def decide_all(
    working: Working, drafts: Sequence[Draft], now: float
) -> list[Decided | FederationError]:
    """Each on what the ones before it left; what is wrong with one is its own answer."""
    return [_decided_or_wrong(working, draft, now) for draft in drafts]


def decide_rest(
    working: Working,
    drafts: Sequence[Draft],
    decided: Sequence[Decided | FederationError],
    now: float,
) -> list[Decided | FederationError]:
    """The same where they were decided on a fleet that never came to be.

    Shares of whole workloads stay if there is room for them all the same.
    """
    found: list[Decided | FederationError] = []
    for draft, before in zip(drafts, decided, strict=True):
        packed = None
        if isinstance(before, Decided) and before.is_whole:
            packed = _packed_again(working, before)
        found.append(packed or _decided_or_wrong(working, draft, now))
    return found


def pack_again(working: Working, decided: Sequence[Decided]) -> list[Decided | None]:
    """The same shares on newer rooms; None where they do not fit there."""
    return [_packed_again(working, each) for each in decided]


def _decided_or_wrong(working: Working, draft: Draft, now: float) -> Decided | FederationError:
    try:
        return _decided(working, draft, now)
    except FederationError as error:
        return error


def _decided(working: Working, draft: Draft, now: float) -> Decided:
    candidate = draft.candidate
    asked = candidate.certificate or draft.profile.certificate
    available = working.availability(candidate, asked)
    verdict = decide(
        candidate,
        draft.known,
        draft.peers,
        working.snapshot,
        available,
        draft.profile,
        now,
        let_go=_let_go(draft, working.snapshot.positions),
    )
    if verdict.decision.outcome not in PLACED:
        return _failed(working, draft, verdict, asked)
    wish = working.wish(
        candidate,
        draft.id,
        verdict.decision.clusters,
        asked=asked,
        held=draft.holding.clusters,
        adopts=draft.adopts,
    )
    if draft.newest is not None:
        decided = Decided(draft=draft, verdict=verdict, wish=wish)
        if decided.standing is not None:
            return decided
    taken = working.reserve(wish)
    if isinstance(taken, Refused):
        refused = replace(verdict, decision=without_room(verdict.decision, taken.reasons))
        return _failed(working, draft, refused, asked, refused_in=taken.reasons)
    kept = replace(verdict, promises=taken.promises)
    return Decided(draft=draft, verdict=kept, wish=wish, kept=taken)


def _failed(
    working: Working,
    draft: Draft,
    verdict: Verdict,
    asked: Certificate | None,
    *,
    refused_in: Collection[str] = (),
) -> Decided:
    """Nothing is placed; the reason says what is scarce, in the clusters that refused their share
    or in those that came into question.
    """
    positions = working.snapshot.positions
    estimate_reasons = verdict.decision.trace.inputs.estimate_reasons
    decision = with_scarcity(
        verdict.decision,
        draft.candidate,
        partial(working.availability, asked=asked),
        refused=[positions[name] for name in refused_in if name in positions],
        untold=[position for position, why in estimate_reasons.items() if why == OVERCOMMITTED],
    )
    return Decided(draft=draft, verdict=replace(verdict, decision=decision))


def _let_go(draft: Draft, positions: Mapping[str, int]) -> str:
    """How what was reserved for the binding has ended, "" where it is held still.

    In a cluster that is gone nothing can be held: that is a reason of its own.
    """
    before = draft.known.binding if draft.known else None
    if before is None or before.last_scheduled_time is None:
        return ""
    if draft.holding.has_expired:
        return "the lease of what it held has run out"
    ran = {each.name for each in before.clusters if each.replicas and each.name in positions}
    return "" if ran.issubset(draft.holding.clusters) else "what it held was released"


def _packed_again(working: Working, decided: Decided) -> Decided | None:
    if decided.wish is None:
        return decided
    taken = working.reserve(decided.wish)
    if isinstance(taken, Refused):
        return None
    verdict = replace(decided.verdict, promises=taken.promises)
    return replace(decided, kept=taken, verdict=verdict)
