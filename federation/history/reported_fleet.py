"""A decision beside what reports said: what was known of capacity, made again from kept reports.

The newest picture of each cluster that was there before the decision, with what was promised since.
Must not hold a decision to a report that it was not made on: where the agent reported in between,
what was known differs rightly.
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
from federation.capacity.own_promises import KeptPromise
from federation.history.binding_rows import BINDINGS
from federation.history.bodies import inflated
from federation.history.kept_reports import KeptPicture, unpacked_picture
from federation.history.packed_inputs import InputReader, KeptInputs
from federation.history.recorded import Recorded, SharedPart, unpacked, with_triggers
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.model.arrays import IntArray
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.errors import PreconditionFailed
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.placement import Binding, Certificate, binding_key
from federation.model.reported_pools import pools_of
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.promisable import (
    looked_again,
    own_of,
    promisable,
    requirements_of,
    told_by_pools,
)
from federation.scheduler.recorded_capacity import RecordedCapacity, decide_again

# Of clusters where reports say something else: the first tell enough.
MOST_TOLD: Final = 1000
_CAREFUL: Final = PromiseCertificate.CAREFUL
_PLACED: Final = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})
# In microseconds: who began earlier than so long before a picture was taken is in it.
LONGEST_COMMIT: Final = 10_000_000


class KeptBeside(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the time before a decision, which was made ``at`` (microseconds since 1970).

    ``pictures`` are the newest before it, by cluster. ``decisions`` were made since, with some that
    are in the pictures; the oldest first. So are the ``deletions`` of bindings.
    """

    recorded: Recorded
    id: str
    at: int
    pictures: dict[str, KeptPicture]
    decisions: tuple[TracedDecision, ...] = ()
    deletions: tuple[TracedDeletion, ...] = ()
    allow_unproven: bool = False


class ReportedEstimate(NamedTuple):
    """A cluster in which a decision was made on other replicas than reports say.

    They say ``least`` to ``most``: in which order decisions of one moment were made is not kept.
    Sequences are of the reports: 0 where none is known, ``kept`` None where none was kept.
    """

    cluster: str
    decided_on: int
    least: int
    most: int
    decided_on_report: int
    kept_report: int | None

    @property
    def is_unequal(self) -> bool:
        """Whether the very report that it was made on says something else."""
        return self.kept_report == self.decided_on_report


class BesideReports(NamedTuple):
    """What comes of a decision on what reports say.

    Of ``clusters`` a report is kept, of ``on_others`` another one than it was made on; ``since``
    decisions were reckoned in. ``differences`` come first where the very report says something
    else, then where another one does, and of these first where most replicas are concerned.
    """

    decision: Decision
    clusters: int
    on_others: int
    since: int
    differences: tuple[ReportedEstimate, ...]

    @property
    def equal(self) -> bool:
        return not any(each.is_unequal for each in self.differences)


class _Promises(msgspec.Struct, frozen=True):
    cluster: tuple[str, ...] = ()
    certificate: tuple[PromiseCertificate, ...] = ()


class _PromisedPart(msgspec.Struct, frozen=True):
    """What is promised by a decision."""

    inputs: KeptInputs | None = None
    promises: _Promises | None = None


class _Sequences(msgspec.Struct, frozen=True):
    sequences: tuple[int, ...] = ()


class _EvidencePart(SharedPart, frozen=True):
    evidence: _Sequences = _Sequences()


_PROMISED: Final = msgspec.msgpack.Decoder(_PromisedPart, strict=False)
_EVIDENCE: Final = msgspec.msgpack.Decoder(_EvidencePart)


def beside_reports(
    kept: KeptBeside, reader: InputReader, certificates: Mapping[str, Certificate | None]
) -> BesideReports:
    """The decision made again on what reports say. ``certificates`` by profile are what bindings
    ask for that say nothing.

    Raises as ``Recorded.replayed`` does, and KeyError where a body is missing.
    """
    trace, own = unpacked(kept.recorded.trace)
    if own is None:
        raise PreconditionFailed("What it was made on is not kept.", reason="INPUTS_NOT_KEPT")
    inputs = with_triggers(reader.unpacked(own, kept.recorded.bodies), trace)
    asked = inputs.binding.certificate or certificates.get(inputs.profile.name)
    question = _Question(inputs, asked, is_unproven_allowed=kept.allow_unproven)
    stored_c = np.asarray(trace.inputs.available_c, dtype=np.int64)
    before = [each for each in kept.decisions if each.at < kept.at]
    together = [each for each in kept.decisions if each.at == kept.at and each.id != kept.id]
    fleet = _Rebuilt(kept.pictures)
    fleet.follow(before, kept.deletions)
    least_c, most_c = question.answered(fleet, stored_c)
    if together:
        fleet.follow(together, ())
        others = question.answered(fleet, stored_c)
        least_c, most_c = np.minimum(least_c, others[0]), np.maximum(most_c, others[1])
    names = inputs.fleet.names
    reports = _EVIDENCE.decode(inflated(kept.recorded.trace)[0]).evidence.sequences
    made_on_c = np.zeros(len(names), np.int64)
    made_on_c[: len(reports)] = reports
    kept_c = np.array([_sequence(fleet.clusters.get(name)) for name in names], np.int64)
    is_kept_c, is_same_c = kept_c >= 0, kept_c == made_on_c
    nearest_c = np.clip(stored_c, least_c, most_c)
    differing_c = (nearest_c != stored_c) | ~is_kept_c
    off_c = np.abs(nearest_c - stored_c)
    # By what weighs most: the last key.
    order = np.lexsort((-off_c, ~is_kept_c, ~is_same_c))
    known = Estimates(
        # Of what was said by a report that is not kept, the decision alone knows.
        replicas_c=np.where(is_same_c, nearest_c, stored_c),
        source_c=np.asarray(trace.inputs.source_c, dtype=np.int8),
        bound_c=np.asarray(trace.inputs.bound_c, dtype=np.int8),
        reasons=trace.inputs.estimate_reasons,
    )
    return BesideReports(
        decision=decide_again(inputs, RecordedCapacity(known), trace.now),
        clusters=int(is_kept_c.sum()),
        on_others=int((is_kept_c & ~is_same_c).sum()),
        since=len(before) + len(together),
        differences=tuple(
            ReportedEstimate(
                cluster=names[c],
                decided_on=int(stored_c[c]),
                least=int(least_c[c]) if is_kept_c[c] else 0,
                most=int(most_c[c]) if is_kept_c[c] else 0,
                decided_on_report=int(made_on_c[c]),
                kept_report=int(kept_c[c]) if is_kept_c[c] else None,
            )
            for c in order[differing_c[order]][:MOST_TOLD].tolist()
        ),
    )


class _Known:
    """One cluster, and what is outstanding there: what was promised last at the end."""

    def __init__(self, kept: KeptPicture) -> None:
        self.picture = unpacked_picture(kept.body)
        self.since = kept.since - LONGEST_COMMIT
        self.decided = kept.decided
        self.outstanding = tuple(promise.outstanding for promise in self.picture.promised)
        # By the decision of that id, as far as the picture says.
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
        return UnpackedRoom(report_id, self.pools, self.picture.follows_claims, self.outstanding)

    def knows(self, decision: TracedDecision) -> bool:
        """Whether its picture was taken after that."""
        return decision.at < self.since or decision.id in self.decided

    def give(
        self, binding: Binding, replicas: int, was: int, certificate: PromiseCertificate
    ) -> None:
        """So many replicas, or whole sets, in place of those that ``was`` there: of these some may
        be seen already.
        """
        own_promises, promises = of_binding(self.outstanding, binding.key), []
        for component, requirements, more in _parts(binding, replicas - was):
            had = [promise for promise in own_promises if promise.component == component]
            waiting = sum(promise.in_cells for promise in had)
            if any(promise.requirements != requirements for promise in had):
                waiting = was * _times(binding, component)
            left = max(0, waiting + more)
            if left:
                promises.append(
                    Outstanding(binding.key, requirements, left, component, certificate, left)
                )
        change = PromiseChange.of(own_promises, tuple(promises))
        self.outstanding = (*kept_in(self.outstanding, {binding.key: change}), *change.more)

    def take(self, key: str) -> None:
        """A binding holds nothing any more."""
        self.outstanding = tuple(promise for promise in self.outstanding if promise.binding != key)


def _sequence(known: _Known | None) -> int:
    """Of the report that is kept, 0 where there was none; -1: the cluster was not there."""
    return known.sequence if known else -1


def _parts(binding: Binding, count: int) -> Iterable[tuple[str, ReplicaRequirements, int]]:
    """Component, shape, and replicas of so many replicas, or sets."""
    if not binding.components:
        return (("", binding.requirements, count),)
    return [(each.name, each.requirements, each.replicas * count) for each in binding.components]


def _times(binding: Binding, component: str) -> int:
    return next((each.replicas for each in binding.components if each.name == component), 1)


class _Rebuilt:
    """The clusters of which pictures are kept, brought forward decision by decision."""

    def __init__(self, pictures: Mapping[str, KeptPicture]) -> None:
        self.clusters = {name: _Known(kept) for name, kept in pictures.items()}

    def follow(
        self, decisions: Sequence[TracedDecision], deletions: Sequence[TracedDeletion]
    ) -> None:
        at_of = {each.id: each.at for each in decisions}
        happened: list[TracedDecision | TracedDeletion] = [*decisions, *deletions]
        for each in sorted(happened, key=lambda one: one.at):
            if isinstance(each, TracedDecision):
                self._decide(each)
            else:
                self._delete(binding_key(each.namespace, each.name), each.at, at_of)

    def _decide(self, decision: TracedDecision) -> None:
        """What places nothing leaves what is there, unless it says what was lost."""
        part = _PROMISED.decode(inflated(inflated(decision.trace)[1])[0])
        if part.inputs is not None and decision.outcome not in _PLACED:
            return
        shares = {each.name: each.replicas for each in decision.clusters}
        promises = part.promises or _Promises()
        worth = dict(zip(promises.cluster, promises.certificate, strict=True))
        binding = BINDINGS.read(part.inputs.binding) if part.inputs else None
        was = {each.name: each.replicas for each in binding.clusters} if binding else {}
        for name, known in self.clusters.items():
            if known.knows(decision):
                continue
            if name not in shares:
                known.take(decision.key)
            elif binding is not None:
                known.give(binding, shares[name], was.get(name, 0), worth.get(name, _CAREFUL))

    def _delete(self, key: str, at: int, at_of: Mapping[str, int]) -> None:
        """Of another one that has its name since then nothing goes."""
        for known in self.clusters.values():
            is_of_later = at_of.get(known.promised_by.get(key, ""), at) > at
            if at >= known.since and not is_of_later:
                known.take(key)


class _Question:
    """How many replicas of a decision's binding fit, as its service asks it."""

    def __init__(
        self, inputs: DecisionInputs, asked: Certificate | None, *, is_unproven_allowed: bool
    ) -> None:
        self._inputs = inputs
        self._asked = asked
        self._is_unproven_allowed = is_unproven_allowed

    def answered(self, fleet: _Rebuilt, stored_c: IntArray) -> tuple[IntArray, IntArray]:
        """How many there are room for, and with a second look where more were counted on."""
        names, binding = self._inputs.fleet.names, self._inputs.binding
        known = [fleet.clusters.get(name) for name in names]
        rooms = FleetRooms.of(each.room if each else None for each in known)
        own = {}
        for target in binding.clusters:
            position = self._inputs.fleet.index.get(target.name)
            room = None if position is None else rooms.rooms[position]
            here = None if position is None else known[position]
            if position is not None and room is not None and here is not None:
                held = of_binding(here.outstanding, binding.key)
                own[position] = KeptPromise(held, sum(promise.to_pack for promise in held))
        told = told_by_pools(rooms, requirements_of(binding))
        beside = own_of(rooms, binding, self._asked, own)
        available = promisable(rooms, binding, self._asked, told, beside)
        available = self._with_totals(known, rooms, told[0], available)
        more_c = available.replicas_c
        if (stored_c > more_c).any():
            more = looked_again(rooms, binding, self._asked, available)
            more_c = more.replicas_c if more is not None else more_c
        return available.replicas_c, more_c

    def _with_totals(
        self,
        known: Sequence[_Known | None],
        rooms: FleetRooms,
        told_c: np.ndarray[tuple[int], np.dtype[np.bool_]],
        available: Estimates,
    ) -> Estimates:
        """Where no nodes are seen: what totals leave, where these count."""
        binding = self._inputs.binding
        reports = [each.picture.report if each else None for each in known]
        lesser_c = ~told_c
        if not self._is_unproven_allowed:
            relayed_c = np.array([bool(each and each.source) for each in reports], np.bool_)
            chooses = any(each.chooses_nodes for each in requirements_of(binding))
            lesser_c = relayed_c & rooms.layers.unknown_c & (not chooses and self._asked is None)
        if not lesser_c.any():
            return available
        states = [
            ClusterState(
                cluster=replace(cluster, model=each.picture.model) if each else cluster,
                report=report,
            )
            for cluster, each, report in zip(
                self._inputs.fleet.clusters, known, reports, strict=True
            )
        ]
        promised = {
            c: cluster.outstanding
            for c, cluster in enumerate(known)
            if cluster and cluster.outstanding
        }
        unit = shape_of(binding)
        highest = Source.SUMMARY if PODS in unit.request else Source.MODELS
        options = EstimateOptions(highest=highest, ignore_claims=True)
        left = Deductions.of(FleetCapacity.of(states), promised).estimates(unit, options)
        replicas_c = np.where(lesser_c, left.replicas_c, available.replicas_c)
        return replace(available, replicas_c=replicas_c)
