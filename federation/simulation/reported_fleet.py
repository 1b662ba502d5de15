"""A decision compared with stored reports: the capacity that they show, and the decision on it.

The newest picture of each cluster before the decision is used, with the promises since. Must not
hold a decision to a report that it was not made on: an agent may have reported in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec
import numpy as np

from federation.capacity.cluster_room import ReportId
from federation.capacity.deductions import Deductions
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.growth import PromiseChange, kept_in, of_binding
from federation.history.binding_rows import BINDINGS
from federation.history.bodies import inflated
from federation.history.kept_reports import KeptPicture, unpacked_picture
from federation.history.packed_inputs import InputReader, KeptInputs
from federation.history.recorded import Recorded, SharedPart
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.model.arrays import IntArray
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.placement import Binding, Certificate, binding_key
from federation.model.reported_pools import pools_of
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.promisable import looked_again, requirements_of
from federation.scheduler.replay import RecordedCapacity, decide_again
from federation.simulation.capacity import promisable_beside_own

# Clusters that are named because reports show another capacity.
MAX_DIFFERENCES: Final = 1000
_CAREFUL: Final = PromiseCertificate.CAREFUL
_PLACED: Final = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})
# Microseconds: a decision that began earlier than this before a picture is in the picture.
MAX_COMMIT_MICROS: Final = 10_000_000


class ReportReplayInput(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded decision, made ``at`` (microseconds since 1970), and the state before it.

    ``pictures`` are the newest before it, by cluster. ``decisions`` and ``deletions`` of bindings
    came since, the oldest first; some of them are in the pictures.
    """

    recorded: Recorded
    id: str
    at: int
    pictures: dict[str, KeptPicture]
    decisions: tuple[TracedDecision, ...] = ()
    deletions: tuple[TracedDeletion, ...] = ()
    allow_unproven: bool = False


class ReportedEstimate(NamedTuple):
    """A cluster for which a decision was made on other replicas than reports show.

    They show ``least`` to ``most``, because the order of decisions of one moment is not stored.
    ``decided_on_report`` and ``kept_report`` are sequences of reports; 0 or None: there is none.
    """

    cluster: str
    decided_on: int
    least: int
    most: int
    decided_on_report: int
    kept_report: int | None

    @property
    def is_unequal(self) -> bool:
        """Whether the very report that it was made on shows something else."""
        return self.kept_report == self.decided_on_report


class ReportComparison(NamedTuple):
    """A decision made again on stored reports, and the differences of capacity.

    ``clusters`` have a stored report, ``on_others`` of them another one than it was made on.
    ``since`` counts the decisions after the pictures. ``differences`` by the very report come
    first, then those by another one, the largest first.
    """

    decision: Decision
    clusters: int
    on_others: int
    since: int
    differences: tuple[ReportedEstimate, ...]

    @property
    def equal(self) -> bool:
        return not any(difference.is_unequal for difference in self.differences)


class _Promises(msgspec.Struct, frozen=True):
    cluster: tuple[str, ...] = ()
    certificate: tuple[PromiseCertificate, ...] = ()


class _PromisedPart(msgspec.Struct, frozen=True):
    """The promises of a decision."""

    inputs: KeptInputs | None = None
    promises: _Promises | None = None


class _Sequences(msgspec.Struct, frozen=True):
    sequences: tuple[int, ...] = ()


class _EvidencePart(SharedPart, frozen=True):
    evidence: _Sequences = _Sequences()


_PROMISED: Final = msgspec.msgpack.Decoder(_PromisedPart, strict=False)
_EVIDENCE: Final = msgspec.msgpack.Decoder(_EvidencePart)


def compare_with_reports(
    source: ReportReplayInput, reader: InputReader, certificates: Mapping[str, Certificate | None]
) -> ReportComparison:
    """Make a decision again on stored reports.

    ``certificates`` by profile are for bindings that name none. Raises as ``Recorded.replayed``
    does, and KeyError if a body is missing.
    """
    trace, inputs, _ = source.recorded.unpacked(reader)
    certificate = inputs.binding.certificate or certificates.get(inputs.profile.name)
    check = _CapacityCheck(inputs, certificate, is_unproven_allowed=source.allow_unproven)
    stored_c = np.asarray(trace.inputs.available_c, dtype=np.int64)
    earlier = [decision for decision in source.decisions if decision.at < source.at]
    together = [
        decision
        for decision in source.decisions
        if decision.at == source.at and decision.id != source.id
    ]
    fleet = _FleetFromReports(source.pictures)
    fleet.follow(earlier, source.deletions)
    least_c, most_c = check.available(fleet, stored_c)
    if together:
        fleet.follow(together, ())
        answers = check.available(fleet, stored_c)
        least_c, most_c = np.minimum(least_c, answers[0]), np.maximum(most_c, answers[1])
    names = inputs.fleet.names
    reports = _EVIDENCE.decode(inflated(source.recorded.trace)[0]).evidence.sequences
    made_on_c = np.zeros(len(names), np.int64)
    made_on_c[: len(reports)] = reports
    kept_c = np.array([_sequence(fleet.clusters.get(name)) for name in names], np.int64)
    is_kept_c, is_same_c = kept_c >= 0, kept_c == made_on_c
    nearest_c = np.clip(stored_c, least_c, most_c)
    differing_c = (nearest_c != stored_c) | ~is_kept_c
    off_c = np.abs(nearest_c - stored_c)
    # The last key weighs most.
    order = np.lexsort((-off_c, ~is_kept_c, ~is_same_c))
    estimates = Estimates(
        # Only the decision knows what a report said that is not stored.
        replicas_c=np.where(is_same_c, nearest_c, stored_c),
        source_c=np.asarray(trace.inputs.source_c, dtype=np.int8),
        bound_c=np.asarray(trace.inputs.bound_c, dtype=np.int8),
        reasons=trace.inputs.estimate_reasons,
    )
    return ReportComparison(
        decision=decide_again(inputs, RecordedCapacity(estimates), trace.now),
        clusters=int(is_kept_c.sum()),
        on_others=int((is_kept_c & ~is_same_c).sum()),
        since=len(earlier) + len(together),
        differences=tuple(
            ReportedEstimate(
                cluster=names[c],
                decided_on=int(stored_c[c]),
                least=int(least_c[c]) if is_kept_c[c] else 0,
                most=int(most_c[c]) if is_kept_c[c] else 0,
                decided_on_report=int(made_on_c[c]),
                kept_report=int(kept_c[c]) if is_kept_c[c] else None,
            )
            for c in order[differing_c[order]][:MAX_DIFFERENCES].tolist()
        ),
    )


class _ReportedCluster:
    """One cluster by its picture, and the outstanding promises there, the last at the end."""

    def __init__(self, picture: KeptPicture) -> None:
        self.picture = unpacked_picture(picture.body)
        self.since = picture.since - MAX_COMMIT_MICROS
        self.decided = picture.decided
        self.outstanding = tuple(promise.outstanding for promise in self.picture.promised)
        # The ids of decisions by binding, as far as the picture says.
        self.promised_by = {
            promise.outstanding.binding: promise.decision for promise in self.picture.promised
        }
        report = self.picture.report
        self.sequence = report.sequence if report else 0
        self.pools = pools_of(report.pools) if report and report.pools else None

    @property
    def room(self) -> UnpackedRoom | None:
        report = self.picture.report
        if report is None or self.pools is None:
            return None
        report_id = ReportId(report.epoch, report.sequence)
        order = PackingOrder.of_report(self.outstanding)
        return UnpackedRoom(report_id, self.pools, self.picture.follows_claims, order)

    def knows(self, decision: TracedDecision) -> bool:
        """Whether its picture was taken after the decision."""
        return decision.at < self.since or decision.id in self.decided

    def give(
        self, binding: Binding, replicas: int, was: int, certificate: PromiseCertificate
    ) -> None:
        """Promise replicas, or sets, in place of ``was``; reports may show some already."""
        own_promises, promises = of_binding(self.outstanding, binding.key), []
        for component, requirements, growth in _parts(binding, replicas - was):
            had = [promise for promise in own_promises if promise.component == component]
            waiting = sum(promise.in_cells for promise in had)
            if any(promise.requirements != requirements for promise in had):
                waiting = was * _times(binding, component)
            open_replicas = max(0, waiting + growth)
            if open_replicas:
                promises.append(
                    Outstanding(
                        binding.key,
                        requirements,
                        open_replicas,
                        component,
                        certificate,
                        open_replicas,
                    )
                )
        change = PromiseChange.of(own_promises, tuple(promises))
        staying = kept_in(PackingOrder.of_report(self.outstanding), {binding.key: change})
        self.outstanding = (*staying.promises, *change.more)

    def take(self, key: str) -> None:
        """Remove the promises of a binding."""
        self.outstanding = tuple(promise for promise in self.outstanding if promise.binding != key)


def _sequence(cluster: _ReportedCluster | None) -> int:
    """Return the sequence of the stored report, 0 if there is none; -1: no such cluster."""
    return cluster.sequence if cluster else -1


def _parts(binding: Binding, count: int) -> Iterable[tuple[str, ReplicaRequirements, int]]:
    """Return components, requirements and replicas of ``count`` replicas, or sets."""
    if not binding.components:
        return (("", binding.requirements, count),)
    return [
        (component.name, component.requirements, component.replicas * count)
        for component in binding.components
    ]


def _times(binding: Binding, component: str) -> int:
    return next(
        (candidate.replicas for candidate in binding.components if candidate.name == component), 1
    )


class _FleetFromReports:
    """The clusters with pictures, brought forward decision by decision."""

    def __init__(self, pictures: Mapping[str, KeptPicture]) -> None:
        self.clusters = {name: _ReportedCluster(picture) for name, picture in pictures.items()}

    def follow(
        self, decisions: Sequence[TracedDecision], deletions: Sequence[TracedDeletion]
    ) -> None:
        at_of = {decision.id: decision.at for decision in decisions}
        happened: list[TracedDecision | TracedDeletion] = [*decisions, *deletions]
        for event in sorted(happened, key=lambda one: one.at):
            if isinstance(event, TracedDecision):
                self._decide(event)
            else:
                self._delete(binding_key(event.namespace, event.name), event.at, at_of)

    def _decide(self, decision: TracedDecision) -> None:
        """Apply a decision; one that places nothing changes nothing, unless it names a loss."""
        part = _PROMISED.decode(inflated(inflated(decision.trace)[1])[0])
        if part.inputs is not None and decision.outcome not in _PLACED:
            return
        shares = {target.name: target.replicas for target in decision.clusters}
        promises = part.promises or _Promises()
        worth = dict(zip(promises.cluster, promises.certificate, strict=True))
        binding = BINDINGS.read(part.inputs.binding) if part.inputs else None
        was = {target.name: target.replicas for target in binding.clusters} if binding else {}
        for name, cluster in self.clusters.items():
            if cluster.knows(decision):
                continue
            if name not in shares:
                cluster.take(decision.key)
            elif binding is not None:
                cluster.give(binding, shares[name], was.get(name, 0), worth.get(name, _CAREFUL))

    def _delete(self, key: str, at: int, at_of: Mapping[str, int]) -> None:
        """Remove a deleted binding, but not a later one of its name."""
        for cluster in self.clusters.values():
            is_of_later = at_of.get(cluster.promised_by.get(key, ""), at) > at
            if at >= cluster.since and not is_of_later:
                cluster.take(key)


class _CapacityCheck:
    """The capacity for a decision's binding, computed as the service does."""

    def __init__(
        self, inputs: DecisionInputs, certificate: Certificate | None, *, is_unproven_allowed: bool
    ) -> None:
        self._inputs = inputs
        self._asked = certificate
        self._is_unproven_allowed = is_unproven_allowed

    def available(self, fleet: _FleetFromReports, stored_c: IntArray) -> tuple[IntArray, IntArray]:
        """Return how many replicas fit, also after rehearsals if the decision counted on more."""
        names, binding = self._inputs.fleet.names, self._inputs.binding
        clusters = [fleet.clusters.get(name) for name in names]
        rooms = FleetRooms.of(cluster.room if cluster else None for cluster in clusters)
        available = promisable_beside_own(rooms, self._inputs.fleet.index, binding, self._asked)
        available = self._with_totals(clusters, rooms, available)
        more_c = available.replicas_c
        if (stored_c > more_c).any():
            rehearsed = looked_again(rooms, binding, self._asked, available)
            more_c = rehearsed.replicas_c if rehearsed is not None else more_c
        return available.replicas_c, more_c

    def _with_totals(
        self,
        clusters: Sequence[_ReportedCluster | None],
        rooms: FleetRooms,
        available: Estimates,
    ) -> Estimates:
        """Fill in clusters without reported nodes from totals, if these count."""
        binding = self._inputs.binding
        reports = [cluster.picture.report if cluster else None for cluster in clusters]
        lesser_c = available.source_c != Source.POOLS
        if not self._is_unproven_allowed:
            relayed_c = np.array([bool(report and report.source) for report in reports], np.bool_)
            chooses = any(requirements.chooses_nodes for requirements in requirements_of(binding))
            lesser_c = relayed_c & rooms.layers.unknown_c & (not chooses and self._asked is None)
        if not lesser_c.any():
            return available
        states = [
            ClusterState(
                cluster=replace(cluster, model=state.picture.model) if state else cluster,
                report=report,
            )
            for cluster, state, report in zip(
                self._inputs.fleet.clusters, clusters, reports, strict=True
            )
        ]
        promised = {
            c: cluster.outstanding
            for c, cluster in enumerate(clusters)
            if cluster and cluster.outstanding
        }
        unit = shape_of(binding)
        highest = Source.SUMMARY if PODS in unit.request else Source.MODELS
        options = EstimateOptions(highest=highest, ignore_claims=True)
        estimates = Deductions.of(FleetCapacity.of(states), promised).estimates(unit, options)
        replicas_c = np.where(lesser_c, estimates.replicas_c, available.replicas_c)
        return replace(available, replicas_c=replicas_c)
