"""What would have been decided: recorded decisions made again where something is otherwise.

Each is made by the same cycle, on what was known then, less or more by what earlier decisions put
elsewhere: where nothing is otherwise the same comes out. Must not read files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from federation.history.changes import ChangedFleet, ChangedFleets, WhatIfChange
from federation.history.packed_inputs import InputReader
from federation.history.recorded import KnownInputs, known_inputs, stored_refusals
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.history.what_ifs import MOST_DIFFERENT, DifferentDecision, WhatIf
from federation.history.worlds import REPLICAS, Axes, UnitAmounts, World
from federation.model.arrays import IntArray
from federation.model.estimate import Estimates, Source
from federation.model.placement import Binding, BindingName, groups_of
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.recorded_capacity import RecordedCapacity, decide_again
from federation.scheduler.replay import canonical
from federation.scheduler.triggers import evicting_taints, leaving

# Who waits by the change is tried again when there may be room, no more often than that.
RETRY_SECONDS: Final = 1.0
PLACED: Final = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})


class _Result(NamedTuple):
    """What a decision comes to; ``clusters`` None: what is placed stays as it is."""

    outcome: str
    clusters: tuple[TargetCluster, ...] | None
    remainder: int

    @classmethod
    def of(cls, decision: Decision | TracedDecision) -> _Result:
        clusters = decision.targets if isinstance(decision, TracedDecision) else decision.clusters
        is_placed = decision.outcome in PLACED
        return cls(decision.outcome, clusters if is_placed else None, decision.remainder)

    def plain(self) -> list[Any]:
        shares = [[each.name, each.replicas] for each in self.clusters or ()]
        return [self.outcome, shares, self.remainder]

    def text(self) -> str:
        shares = ", ".join(f"{each.name}={each.replicas}" for each in self.clusters or ())
        return f"{self.outcome} {shares}".rstrip()


class _Sight(NamedTuple):
    """What was known of capacity for one kind of unit, in which columns of the axes, and what was
    held there then of the resources that it asks for, which have these ``rows`` of the axes.
    """

    available: Estimates
    columns_c: IntArray
    rows: IntArray
    amounts_r: IntArray
    held_rc: IntArray


class _Stray(NamedTuple):
    """One that is elsewhere, or waits otherwise, than it was recorded: as it was decided last."""

    inputs: DecisionInputs
    unit: UnitAmounts


class _Refused(NamedTuple):
    """Of one kind of unit: in which fleet somebody was refused last, and what was left then."""

    fleet: ChangedFleet | None
    left_c: IntArray


class Counterfactual:
    """Decisions of one window, in their order, as they were and with a change.

    It begins with what was there: what nobody decided about within the window is as it was in both
    worlds. Raises as ``InputReader.unpacked`` does, and PluginFailed.
    """

    def __init__(self, change: WhatIfChange, reader: InputReader) -> None:
        self._change = change
        self._axes = Axes()
        self._fleets = ChangedFleets(change, self._axes)
        self._reader = reader
        self._recorded, self._changed = World(self._axes), World(self._axes)
        self._strays: dict[BindingName, _Stray] = {}
        self._sights: dict[UnitAmounts, _Sight] = {}
        self._waiting: set[BindingName] = set()
        self._refused: dict[UnitAmounts, _Refused] = {}
        self._fleet: ChangedFleet | None = None
        self._has_room = False
        self._retried_at = self._began = self._now = 0.0
        self._counts = {"decisions": 0, "different": 0, "skipped": 0, "retried": 0}
        self._different: list[DifferentDecision] = []
        self._digest = hashlib.sha256()

    def take(self, decision: TracedDecision, bodies: Mapping[bytes, bytes]) -> None:
        """The next recorded decision."""
        self._now = decision.at / 1e6
        self._began = self._began or self._now
        self._retry()
        self._counts["decisions"] += 1
        self._take(decision, bodies)
        self._retry()

    def _take(self, decision: TracedDecision, bodies: Mapping[bytes, bytes]) -> None:
        known = known_inputs(decision.trace)
        if known is None:
            # It says what a binding lost: all of it where nothing is named.
            self._take_over(decision, _Result.of(decision)._replace(clusters=decision.targets))
            return
        try:
            inputs = self._reader.unpacked(known.kept, bodies)
        except KeyError:
            # Forgotten before the export.
            self._counts["skipped"] += 1
            self._take_over(decision, _Result.of(decision))
            return
        self._decide(decision, known, inputs)

    def delete(self, deletion: TracedDeletion) -> None:
        """A binding was deleted, in both worlds."""
        self._now, key = deletion.at / 1e6, (deletion.namespace, deletion.name)
        for world in (self._recorded, self._changed):
            world.remove(key, self._now)
        self._forget(key)
        self._has_room = True
        self._retry()

    def result(self) -> WhatIf:
        """What came of all decisions that were taken."""
        return WhatIf(
            **self._counts,
            first_different=tuple(self._different),
            seconds=self._now - self._began,
            clusters=self._fleets.names,
            recorded=self._recorded.finish(self._now),
            changed=self._changed.finish(self._now),
            sha256=self._digest.hexdigest(),
        )

    def _decide(self, decision: TracedDecision, known: KnownInputs, inputs: DecisionInputs) -> None:
        key = decision.namespace, decision.name
        unit = UnitAmounts.of(inputs.binding)
        if key not in self._recorded.standings:
            for world in (self._recorded, self._changed):
                world.meet(key, inputs.binding, unit, self._now)
        fleet = self._fleets.of(inputs.fleet)
        self._look(fleet)
        available = self._fleets.available(fleet, known.available, inputs.binding)
        self._see(unit, fleet, available)
        changed = self._changed_inputs(key, known, inputs, fleet)
        refused = stored_refusals(known.kept.refused)
        is_refused = partial(self._is_refused, known, inputs)
        capacity = RecordedCapacity(self._left(unit), refused, is_refused)
        made = decide_again(changed, capacity, known.now)
        self._recorded.figures.outcomes[decision.outcome] += 1
        self._settle(self._recorded, key, _Result.of(decision), unit)
        self._changed.figures.outcomes[made.outcome] += 1
        self._settle(self._changed, key, _Result.of(made), unit)
        self._keep(key, changed, unit)
        self._compare(decision, _Result.of(decision), _Result.of(made))

    def _changed_inputs(
        self, key: BindingName, known: KnownInputs, inputs: DecisionInputs, fleet: ChangedFleet
    ) -> DecisionInputs:
        """What it is decided on with the change: where it runs by then, and what is otherwise."""
        binding = self._change.placed(inputs.binding)
        if key in self._strays:
            binding = replace(binding, clusters=self._changed.standings[key].clusters)
            binding = leaving(binding, evicting_taints(binding, fleet.fleet, self._now))
        around = inputs.surroundings
        affinity, anti_affinity = groups_of(binding)
        return DecisionInputs(
            binding=binding,
            fleet=fleet.fleet,
            profile=self._change.profile_of(binding, inputs.profile),
            surroundings=replace(
                around,
                affinity_peers=self._peers(key, affinity, 0, around.affinity_peers),
                anti_affinity_peers=self._peers(key, anti_affinity, 1, around.anti_affinity_peers),
                is_settled=around.is_settled and binding.placement == inputs.binding.placement,
                triggers=known.triggers,
            ),
        )

    def _peers(
        self, key: BindingName, group: str, which: int, recorded: tuple[frozenset[str], ...]
    ) -> tuple[frozenset[str], ...]:
        """Where the others of its group are with the change."""
        if not (group and recorded and self._strays):
            return recorded
        peers = list(recorded)
        for other, stray in self._strays.items():
            was = _names(self._recorded.standings[other].clusters)
            is_of_group = other[0] == key[0] and groups_of(stray.inputs.binding)[which] == group
            if other != key and is_of_group and was in peers:
                peers[peers.index(was)] = _names(self._changed.standings[other].clusters)
        return tuple(each for each in peers if each)

    def _see(self, unit: UnitAmounts, fleet: ChangedFleet, available: Estimates) -> None:
        """What is known of capacity for such a unit, as of now."""
        known = self._sights.get(unit)
        if known is None:
            asked = {name: amount for name, amount in unit.request if name != REPLICAS}
            rows = np.array([self._axes.row(name) for name in asked], dtype=np.int64)
            amounts_r = np.array([*asked.values()], dtype=np.int64)
        else:
            rows, amounts_r = known.rows, known.amounts_r
        held_rc = self._recorded.held_of(rows, fleet.columns_c)
        self._sights[unit] = _Sight(available, fleet.columns_c, rows, amounts_r, held_rc)
        self._has_room = True

    def _left(self, unit: UnitAmounts) -> Estimates:
        """How much is left with the change, now: what was seen last, and what has become of what
        was held then; never more than totals allow.
        """
        available = self._sights[unit].available
        left_c = self._left_c(unit)
        if left_c is available.replicas_c:
            return available
        return replace(available, replicas_c=left_c)

    def _left_c(self, unit: UnitAmounts) -> IntArray:
        available, columns_c, rows, amounts_r, held_rc = self._sights[unit]
        freed_rc = held_rc - self._changed.held_of(rows, columns_c)
        if not np.count_nonzero(freed_rc):
            return available.replicas_c
        more_c: IntArray = np.minimum.reduce(freed_rc // amounts_r[:, np.newaxis])
        left_c: IntArray = np.maximum(available.replicas_c + more_c, 0)
        left_c *= available.source_c != Source.NONE
        return left_c

    def _is_refused(self, known: KnownInputs, inputs: DecisionInputs, made: Decision) -> bool:
        """Whether shares that found no room then find none with the change either."""
        refused = known.kept.refused
        if "" in refused:
            # By a plugin, or because of others of its gang: nothing tells that it were otherwise.
            return True
        names = inputs.fleet.names
        were = {names[position]: share for position, share in known.shares.items()}
        return any(
            each.name in refused
            and each.replicas >= were.get(each.name, 0)
            and not self._is_freed(each.name)
            for each in made.clusters
        )

    def _is_freed(self, cluster: str) -> bool:
        at_c = np.array([self._axes.column(cluster)])
        now, was = self._changed, self._recorded
        return any((now.held(each, at_c) < was.held(each, at_c)).any() for each in self._axes.rows)

    def _settle(self, world: World, key: BindingName, result: _Result, unit: UnitAmounts) -> None:
        before = world.standings[key].clusters
        after = before if result.clusters is None else result.clusters
        pending = result.remainder
        if result.clusters is None:
            # What was placed before stays, and is not what is missing.
            pending = max(0, pending - sum(each.replicas for each in before))
        world.settle(key, after, pending, self._now, unit)
        if world is self._changed and after != before:
            self._has_room = True

    def _keep(self, key: BindingName, inputs: DecisionInputs, unit: UnitAmounts) -> None:
        """Remember one that is elsewhere, or waits otherwise, than it was recorded."""
        was, now = self._recorded.standings[key], self._changed.standings[key]
        if was.clusters == now.clusters and was.pending == now.pending:
            self._forget(key)
            return
        self._strays[key] = _Stray(inputs, unit)
        (self._waiting.add if now.pending else self._waiting.discard)(key)
        refused = self._refused.get(unit)
        if now.pending and refused is not None and refused.fleet is self._fleet:
            # It may be smaller than who was refused: for it there is more room sooner.
            left_c = np.minimum(refused.left_c, self._left_c(unit))
            self._refused[unit] = refused._replace(left_c=left_c)

    def _forget(self, key: BindingName) -> None:
        self._strays.pop(key, None)
        self._waiting.discard(key)

    def _take_over(self, decision: TracedDecision, result: _Result) -> None:
        """What cannot be made again: what was lost then is lost with the change, where it is there;
        one that is as it was recorded becomes what was recorded.
        """
        key = decision.namespace, decision.name
        for world in (self._recorded, self._changed):
            world.figures.outcomes[decision.outcome] += 1
        changed = result
        if key in self._recorded.standings:
            if key in self._strays:
                changed = self._less(key, result)
            for world, each in ((self._recorded, result), (self._changed, changed)):
                self._settle(world, key, each, world.standings[key].unit)
            if key in self._strays:
                self._keep(key, *self._strays[key])
        self._compare(decision, result, changed)

    def _less(self, key: BindingName, result: _Result) -> _Result:
        """What one that is elsewhere with the change has left of it."""
        if result.clusters is None:
            return result
        left = {each.name: each.replicas for each in result.clusters}
        was = self._recorded.standings[key].clusters
        lost = {each.name: max(0, each.replicas - left.get(each.name, 0)) for each in was}
        now = (
            replace(each, replicas=each.replicas - lost.get(each.name, 0))
            for each in self._changed.standings[key].clusters
        )
        clusters = tuple(each for each in now if each.replicas > 0)
        return result._replace(clusters=clusters)

    def _compare(self, decision: TracedDecision, recorded: _Result, changed: _Result) -> None:
        self._digest.update(canonical([decision.id, changed.plain()]))
        if changed == recorded:
            return
        self._counts["different"] += 1
        if len(self._different) < MOST_DIFFERENT:
            self._different.append(
                DifferentDecision(
                    id=decision.id,
                    binding=decision.key,
                    at=self._now,
                    recorded=recorded.text(),
                    changed=changed.text(),
                )
            )

    def _look(self, fleet: ChangedFleet) -> None:
        """Who is by the change alone in clusters that have to be left now leaves them."""
        before, self._fleet = self._fleet, fleet
        if before is None or fleet is before:
            return
        if (before.to_leave, before.fleet.names) == (fleet.to_leave, fleet.fleet.names):
            return
        for key, stray in [*self._strays.items()]:
            was = _names(self._recorded.standings[key].clusters)
            standing = self._changed.standings[key]
            binding = replace(stray.inputs.binding, clusters=standing.clusters)
            evicting = evicting_taints(binding, fleet.fleet, self._now)
            gone = _names(standing.clusters) - fleet.fleet.index.keys()
            if (evicting.keys() | gone) - was:
                self._decide_again(key, stray, leaving(binding, evicting))

    def _retry(self) -> None:
        """Try who waits by the change, in the order of the queue, where there may be room."""
        is_late = self._now - self._retried_at >= RETRY_SECONDS
        if not (self._has_room and is_late and self._waiting):
            return
        self._has_room, self._retried_at = False, self._now
        units = {self._strays[key].unit for key in self._waiting}
        open_units = {unit for unit in units if self._has_more(unit)}
        waiting = [
            (
                -self._strays[key].inputs.binding.priority,
                self._changed.standings[key].waits_since or 0.0,
                key,
            )
            for key in self._waiting
            if self._strays[key].unit in open_units
        ]
        for _, _, key in sorted(waiting):
            stray = self._strays[key]
            if stray.unit not in open_units:
                continue
            clusters = self._changed.standings[key].clusters
            binding = replace(stray.inputs.binding, clusters=clusters)
            if not self._decide_again(key, stray, binding):
                open_units.remove(stray.unit)
                self._refused[stray.unit] = _Refused(self._fleet, self._left_c(stray.unit))

    def _has_more(self, unit: UnitAmounts) -> bool:
        """Whether there is more room somewhere than when such a unit was refused last."""
        refused = self._refused.get(unit)
        if refused is None or refused.fleet is not self._fleet:
            return True
        left_c = self._left_c(unit)
        return len(left_c) != len(refused.left_c) or bool((left_c > refused.left_c).any())

    def _decide_again(self, key: BindingName, stray: _Stray, binding: Binding) -> bool:
        """Decide what only the change has to decide; whether anything came of it."""
        left = self._left(stray.unit)
        fleet = self._fleet
        if fleet is None or len(fleet.fleet) != len(left.replicas_c):
            # Clusters came or went since somebody of this kind was decided.
            return False
        inputs = replace(stray.inputs, binding=binding, fleet=fleet.fleet)
        made = decide_again(inputs, RecordedCapacity(left), self._now)
        if not made.is_placed or made.clusters == self._changed.standings[key].clusters:
            return False
        self._counts["retried"] += 1
        self._settle(self._changed, key, _Result.of(made), stray.unit)
        self._keep(key, inputs, stray.unit)
        self._digest.update(canonical([key, _Result.of(made).plain()]))
        return True


def _names(clusters: Iterable[TargetCluster]) -> frozenset[str]:
    return frozenset(each.name for each in clusters)
