"""The ledger: every reservation of every cluster, and what the newest reports echo of them.

Pure and immutable: what happens gives a new ledger. Must not check capacity, nor read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from federation.model.reservations import Outstanding, Reservation, Share, outstanding_of
from federation.model.shapes import Echo, ReservationKey, request_shape

# Pods carry the decision they were made by; those of decisions longer ago are taken for newer.
DECISIONS_REMEMBERED: Final = 16
# A workload that changes its requests again and again, and never runs, must not fill the ledger.
OLDER_SHAPES_REMEMBERED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLedger:
    """The reservations of one cluster by binding, in the order they were made, and their echoes.

    ``interest_version`` grows whenever the agent has something else to look for; the newest
    report answers ``answered_version``, 0 when the agent had not been told anything.
    """

    cluster: str
    interest_version: int = 0
    answered_version: int = 0
    reservations: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)
    echoes: Mapping[ReservationKey, Echo] = field(default_factory=dict)

    def decided(
        self,
        binding: str,
        decision: str,
        shares: Sequence[Share],
        adopted: Mapping[str, int] | None = None,
    ) -> ClusterLedger:
        """With what a decision gives the binding here, in place of what it had.

        ``adopted`` says by component how many replicas ran before the binding was known. What is
        echoed of a shape stays; a shape that is no longer the newest is only looked for.
        """
        held = {each.key: each for each in self.reservations.get(binding, ())}
        newest = {each.component: each.key for each in self.newest(binding)}
        version = self.interest_version + 1
        kept = {key: replace(each, replicas=0) for key, each in held.items()}
        for share in shares:
            key = ReservationKey(
                binding, share.component, request_shape(share.requirements.request)
            )
            before = held.get(key)
            is_known = (
                before is not None
                and newest[share.component] == key
                and before.requirements.node_claim == share.requirements.node_claim
            )
            made = Reservation(
                binding=binding,
                cluster=self.cluster,
                component=share.component,
                requirements=share.requirements,
                replicas=share.replicas,
                decisions=_remembered(before, decision),
                certificate=share.certificate,
                interest_version=before.interest_version if before and is_known else version,
                adopted=before.adopted if before else (adopted or {}).get(share.component, 0),
            )
            # Behind the older shapes of its component, but in its old place when nothing changes.
            if not is_known:
                kept.pop(key, None)
            kept[key] = made
        remembered = _without_oldest(tuple(kept.values()))
        is_same = [each.interest_version for each in remembered] == [
            each.interest_version for each in self.reservations.get(binding, ())
        ]
        return replace(
            self,
            interest_version=self.interest_version if is_same else version,
            reservations={**self.reservations, binding: remembered},
        )

    def released(self, binding: str) -> ClusterLedger:
        """Without anything of the binding: its pods that are still there are only in reports."""
        if binding not in self.reservations:
            return self
        return replace(
            self,
            interest_version=self.interest_version + 1,
            reservations={
                name: held for name, held in self.reservations.items() if name != binding
            },
            echoes={key: echo for key, echo in self.echoes.items() if key.binding != binding},
        )

    def reported(self, interest_version: int, echoes: Iterable[Echo]) -> ClusterLedger:
        """With the echoes of a newer report, in place of all earlier ones.

        A reservation without an echo has no pods in the report's capacity: what the agent did not
        look for is taken as not there, so that nothing is missed. Pods that finished stay echoed.
        """
        seen = {echo.key: echo for echo in echoes}
        kept: dict[ReservationKey, Echo] = {}
        reservations: dict[str, tuple[Reservation, ...]] = {}
        for binding, held in self.reservations.items():
            for each in held:
                echo, before = seen.get(each.key), self.echoes.get(each.key)
                finished = max(echo.finished if echo else 0, before.finished if before else 0)
                if echo is not None or finished:
                    echo = echo or Echo(binding=binding, component=each.component, shape=each.shape)
                    kept[each.key] = replace(echo, finished=finished)
            reservations[binding] = _answered(held, interest_version, kept)
        return replace(
            self,
            answered_version=interest_version,
            reservations=reservations,
            echoes=kept,
        )

    def newest(self, binding: str) -> list[Reservation]:
        """The reservation of the newest shape of each component."""
        by_component: dict[str, Reservation] = {}
        for each in self.reservations.get(binding, ()):
            known = by_component.get(each.component)
            if known is None or known.interest_version < each.interest_version:
                by_component[each.component] = each
        return list(by_component.values())

    def outstanding(self) -> tuple[Outstanding, ...]:
        """What every binding has outstanding here, in the order the reservations were made."""
        return tuple(each for binding in self.reservations for each in self.outstanding_of(binding))

    def outstanding_of(self, binding: str) -> tuple[Outstanding, ...]:
        """What one binding has outstanding here, by component; what is echoed as a whole is not."""
        found = []
        for newest in self.newest(binding):
            older = [
                (each, self.echoes[each.key])
                for each in self.reservations[binding]
                if each.component == newest.component
                and each.key != newest.key
                and each.key in self.echoes
            ]
            outstanding = outstanding_of(newest, self.echoes.get(newest.key), older)
            if outstanding.in_cells:
                found.append(outstanding)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledgers of a fleet's clusters, by name."""

    clusters: Mapping[str, ClusterLedger] = field(default_factory=dict)

    def of(self, cluster: str) -> ClusterLedger:
        """The ledger of a cluster, empty where nothing was ever reserved."""
        return self.clusters.get(cluster) or ClusterLedger(cluster=cluster)

    def decided(
        self,
        binding: str,
        decision: str,
        shares: Mapping[str, Sequence[Share]],
        adopted: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Ledger:
        """With a decision's shares by cluster; clusters it leaves out let go of the binding."""
        changed = {
            name: self.of(name).decided(binding, decision, given, (adopted or {}).get(name))
            for name, given in shares.items()
        }
        left = {
            name: ledger.released(binding)
            for name, ledger in self.clusters.items()
            if binding in ledger.reservations and name not in shares
        }
        return Ledger(clusters={**self.clusters, **changed, **left})

    def released(self, binding: str) -> Ledger:
        """Without the binding, in every cluster."""
        return self.decided(binding, "", {})

    def reported(self, cluster: str, interest_version: int, echoes: Iterable[Echo]) -> Ledger:
        """With the echoes of a cluster's newest report."""
        ledger = self.of(cluster).reported(interest_version, echoes)
        return Ledger(clusters={**self.clusters, cluster: ledger})

    def clusters_of(self, binding: str) -> list[str]:
        """Where a binding has reservations."""
        return [name for name, each in self.clusters.items() if binding in each.reservations]


def _remembered(before: Reservation | None, decision: str) -> tuple[str, ...]:
    decisions = before.decisions if before else ()
    if decision in decisions:
        return decisions
    return (*decisions, decision)[-DECISIONS_REMEMBERED:]


def _without_oldest(held: tuple[Reservation, ...]) -> tuple[Reservation, ...]:
    """The reservations with as many older shapes of each component as are remembered."""
    left: list[Reservation] = []
    count: dict[str, int] = {}
    for each in sorted(held, key=lambda each: -each.interest_version):
        count[each.component] = count.get(each.component, 0) + 1
        if count[each.component] <= OLDER_SHAPES_REMEMBERED + 1:
            left.append(each)
    keys = {each.key for each in left}
    return tuple(each for each in held if each.key in keys)


def _answered(
    held: tuple[Reservation, ...], interest_version: int, echoes: Mapping[ReservationKey, Echo]
) -> tuple[Reservation, ...]:
    """The reservations after a report: the agent speaks for what was adopted, once it was told.

    An older shape is forgotten when no pod has it and, by the pods of the newest, none will.
    """
    newest: dict[str, Reservation] = {}
    for each in held:
        if each.interest_version >= newest.get(each.component, each).interest_version:
            newest[each.component] = each
    left = []
    for each in held:
        latest = newest[each.component]
        is_told = latest.interest_version <= interest_version
        is_gone = not _pods(echoes.get(each.key)) and (
            latest.replicas == 0 or _pods(echoes.get(latest.key)) > 0
        )
        if each.key != latest.key and is_told and is_gone:
            continue
        is_answered = each.interest_version <= interest_version
        left.append(replace(each, adopted=0) if is_answered and each.adopted else each)
    return tuple(left)


def _pods(echo: Echo | None) -> int:
    return echo.bound + echo.unbound if echo else 0
