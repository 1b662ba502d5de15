"""Recorded decisions made again with a change.

The same cycle decides on the recorded capacity, changed by what earlier decisions put elsewhere.
Without a change the same decisions come out. Must not read files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from federation.history.packed_inputs import InputReader
from federation.history.recorded import KnownInputs, known_inputs, stored_refusals
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.model.arrays import IntArray
from federation.model.estimate import Estimates, Source
from federation.model.placement import Binding, BindingName, groups_of
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.replay import RecordedCapacity, canonical, decide_again
from federation.scheduler.triggers import evicting_taints, leaving
from federation.simulation.changes import ChangedFleet, ChangedFleets, WhatIfChange
from federation.simulation.figures import (
    MAX_DIFFERENT,
    REPLICAS,
    Axes,
    DifferentDecision,
    UnitAmounts,
    WhatIf,
    World,
)

# A binding that waits by the change is tried again when there may be room, at most this often.
RETRY_SECONDS: Final = 1.0
PLACED: Final = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})


class _Result(NamedTuple):
    """The result of a decision; ``clusters`` None: placed replicas stay as they are."""

    outcome: str
    clusters: tuple[TargetCluster, ...] | None
    remainder: int

    @classmethod
    def of(cls, decision: Decision | TracedDecision) -> _Result:
        clusters = decision.targets if isinstance(decision, TracedDecision) else decision.clusters
        is_placed = decision.outcome in PLACED
        return cls(decision.outcome, clusters if is_placed else None, decision.remainder)

    def plain(self) -> list[Any]:
        shares = [[target.name, target.replicas] for target in self.clusters or ()]
        return [self.outcome, shares, self.remainder]

    def text(self) -> str:
        shares = ", ".join(f"{target.name}={target.replicas}" for target in self.clusters or ())
        return f"{self.outcome} {shares}".rstrip()


class _RecordedCapacity(NamedTuple):
    """The capacity for one kind of unit as recorded last, in the ``columns_c`` of the axes.

    ``held_rc`` was held there then, of the resources that the unit requests: these ``rows``.
    """

    available: Estimates
    columns_c: IntArray
    rows: IntArray
    amounts_r: IntArray
    held_rc: IntArray


class _ChangedBinding(NamedTuple):
    """A binding that is elsewhere, or waits otherwise, than recorded, as it was decided last."""

    inputs: DecisionInputs
    unit: UnitAmounts


class _Refused(NamedTuple):
    """The last refusal of one kind of unit: the fleet, and the available units then."""

    fleet: ChangedFleet | None
    left_c: IntArray


class WhatIfRun:
    """Decisions of one window, in their order, as recorded and with a change.

    A binding that no decision of the window is about is the same in both worlds. Raises as
    ``InputReader.unpacked`` does, and PluginFailed.
    """

    def __init__(self, change: WhatIfChange, reader: InputReader) -> None:
        self._change = change
        self._axes = Axes()
        self._fleets = ChangedFleets(change, self._axes)
        self._reader = reader
        self._recorded, self._changed = World(self._axes), World(self._axes)
        self._changed_bindings: dict[BindingName, _ChangedBinding] = {}
        self._capacities: dict[UnitAmounts, _RecordedCapacity] = {}
        # Bindings that wait by the change, by their unit.
        self._waiting: dict[UnitAmounts, set[BindingName]] = {}
        self._refused: dict[UnitAmounts, _Refused] = {}
        self._fleet: ChangedFleet | None = None
        self._has_room = False
        self._retried_at = self._began = self._now = 0.0
        self._counts = {"decisions": 0, "different": 0, "skipped": 0, "retried": 0}
        self._different: list[DifferentDecision] = []
        self._digest = hashlib.sha256()

    def take(self, decision: TracedDecision, bodies: Mapping[bytes, bytes]) -> None:
        """Take the next recorded decision."""
        self._now = decision.at / 1e6
        self._began = self._began or self._now
        self._retry()
        self._counts["decisions"] += 1
        self._take(decision, bodies)
        self._retry()

    def _take(self, decision: TracedDecision, bodies: Mapping[bytes, bytes]) -> None:
        recorded = known_inputs(decision.trace)
        if recorded is None:
            # It says what a binding lost; without shares it lost all.
            self._take_over(decision, _Result.of(decision)._replace(clusters=decision.targets))
            return
        try:
            inputs = self._reader.unpacked(recorded.kept, bodies)
        except KeyError:
            # Its inputs were forgotten before the export.
            self._counts["skipped"] += 1
            self._take_over(decision, _Result.of(decision))
            return
        self._decide(decision, recorded, inputs)

    def delete(self, deletion: TracedDeletion) -> None:
        """Delete a binding in both worlds."""
        self._now, key = deletion.at / 1e6, (deletion.namespace, deletion.name)
        for world in (self._recorded, self._changed):
            world.remove(key, self._now)
        self._forget(key)
        self._has_room = True
        self._retry()

    def result(self) -> WhatIf:
        """Return the result of all decisions that were taken."""
        return WhatIf(
            **self._counts,
            first_different=tuple(self._different),
            seconds=self._now - self._began,
            clusters=self._fleets.names,
            recorded=self._recorded.finish(self._now),
            changed=self._changed.finish(self._now),
            sha256=self._digest.hexdigest(),
        )

    def _decide(
        self, decision: TracedDecision, recorded: KnownInputs, inputs: DecisionInputs
    ) -> None:
        key = decision.namespace, decision.name
        unit = UnitAmounts.of(inputs.binding)
        if key not in self._recorded.bindings:
            for world in (self._recorded, self._changed):
                world.add(key, inputs.binding, unit, self._now)
        fleet = self._fleets.of(inputs.fleet)
        self._look(fleet)
        available = self._fleets.available(fleet, recorded.available, inputs.binding)
        self._note_capacity(unit, fleet, available)
        changed = self._changed_inputs(key, recorded, inputs, fleet)
        refused = stored_refusals(recorded.kept.refused)
        is_refused = partial(self._is_refused, recorded, inputs)
        capacity = RecordedCapacity(self._available(unit), refused, is_refused)
        again = decide_again(changed, capacity, recorded.now)
        self._recorded.figures.outcomes[decision.outcome] += 1
        self._settle(self._recorded, key, _Result.of(decision), unit)
        self._changed.figures.outcomes[again.outcome] += 1
        self._settle(self._changed, key, _Result.of(again), unit)
        self._keep(key, changed, unit)
        self._compare(decision, _Result.of(decision), _Result.of(again))

    def _changed_inputs(
        self, key: BindingName, recorded: KnownInputs, inputs: DecisionInputs, fleet: ChangedFleet
    ) -> DecisionInputs:
        """Return the inputs of a decision with the change."""
        binding = self._change.placed(inputs.binding)
        if key in self._changed_bindings:
            binding = replace(binding, clusters=self._changed.bindings[key].clusters)
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
                triggers=recorded.triggers,
            ),
        )

    def _peers(
        self, key: BindingName, group: str, which: int, recorded: tuple[frozenset[str], ...]
    ) -> tuple[frozenset[str], ...]:
        """Return the clusters of the other members of its group with the change."""
        if not (group and recorded and self._changed_bindings):
            return recorded
        peers = list(recorded)
        for other, entry in self._changed_bindings.items():
            was = _names(self._recorded.bindings[other].clusters)
            is_of_group = other[0] == key[0] and groups_of(entry.inputs.binding)[which] == group
            if other != key and is_of_group and was in peers:
                peers[peers.index(was)] = _names(self._changed.bindings[other].clusters)
        return tuple(names for names in peers if names)

    def _note_capacity(self, unit: UnitAmounts, fleet: ChangedFleet, available: Estimates) -> None:
        """Note the recorded capacity for such a unit, as of now."""
        last = self._capacities.get(unit)
        if last is None:
            amounts = {name: amount for name, amount in unit.request if name != REPLICAS}
            rows = np.array([self._axes.row(name) for name in amounts], dtype=np.int64)
            amounts_r = np.array([*amounts.values()], dtype=np.int64)
        else:
            rows, amounts_r = last.rows, last.amounts_r
        held_rc = self._recorded.held_of(rows, fleet.columns_c)
        self._capacities[unit] = _RecordedCapacity(
            available, fleet.columns_c, rows, amounts_r, held_rc
        )
        self._has_room = True

    def _available(self, unit: UnitAmounts) -> Estimates:
        """Return the units that fit now with the change.

        That is the capacity as recorded last, and what was freed or taken since.
        """
        available = self._capacities[unit].available
        left_c = self._available_c(unit)
        if left_c is available.replicas_c:
            return available
        return replace(available, replicas_c=left_c)

    def _available_c(self, unit: UnitAmounts) -> IntArray:
        available, columns_c, rows, amounts_r, held_rc = self._capacities[unit]
        freed_rc = held_rc - self._changed.held_of(rows, columns_c)
        if not np.count_nonzero(freed_rc):
            return available.replicas_c
        more_c: IntArray = np.minimum.reduce(freed_rc // amounts_r[:, np.newaxis])
        left_c: IntArray = np.maximum(available.replicas_c + more_c, 0)
        left_c *= available.source_c != Source.NONE
        return left_c

    def _is_refused(self, recorded: KnownInputs, inputs: DecisionInputs, again: Decision) -> bool:
        """Whether shares that were refused then are refused with the change, too."""
        refused = recorded.kept.refused
        if "" in refused:
            # A plugin or its gang refused it, and nothing says that they would not again.
            return True
        names = inputs.fleet.names
        were = {names[position]: share for position, share in recorded.shares.items()}
        return any(
            target.name in refused
            and target.replicas >= were.get(target.name, 0)
            and not self._is_freed(target.name)
            for target in again.clusters
        )

    def _is_freed(self, cluster: str) -> bool:
        at_c = np.array([self._axes.column(cluster)])
        now, was = self._changed, self._recorded
        return any(
            (now.held(resource, at_c) < was.held(resource, at_c)).any()
            for resource in self._axes.rows
        )

    def _settle(self, world: World, key: BindingName, result: _Result, unit: UnitAmounts) -> None:
        stored = world.bindings[key].clusters
        after = stored if result.clusters is None else result.clusters
        pending = result.remainder
        if result.clusters is None:
            # Placed replicas stay, and are not missing.
            pending = max(0, pending - sum(target.replicas for target in stored))
        world.settle(key, after, pending, self._now, unit)
        if world is self._changed and after != stored:
            self._has_room = True

    def _keep(self, key: BindingName, inputs: DecisionInputs, unit: UnitAmounts) -> None:
        """Note a binding that is elsewhere, or waits otherwise, than recorded."""
        was, now = self._recorded.bindings[key], self._changed.bindings[key]
        if was.clusters == now.clusters and was.pending == now.pending:
            self._forget(key)
            return
        self._stop_waiting(key)
        self._changed_bindings[key] = _ChangedBinding(inputs, unit)
        if now.pending:
            self._waiting.setdefault(unit, set()).add(key)
        refused = self._refused.get(unit)
        if now.pending and refused is not None and refused.fleet is self._fleet:
            # It may be smaller than the refused one, and fit sooner.
            left_c = np.minimum(refused.left_c, self._available_c(unit))
            self._refused[unit] = refused._replace(left_c=left_c)

    def _forget(self, key: BindingName) -> None:
        self._stop_waiting(key)
        self._changed_bindings.pop(key, None)

    def _stop_waiting(self, key: BindingName) -> None:
        entry = self._changed_bindings.get(key)
        waiting = self._waiting.get(entry.unit) if entry else None
        if entry is not None and waiting is not None:
            waiting.discard(key)
            if not waiting:
                del self._waiting[entry.unit]

    def _take_over(self, decision: TracedDecision, result: _Result) -> None:
        """Apply a decision that cannot be made again, in both worlds.

        A changed binding loses what was lost then, as far as it has that.
        """
        key = decision.namespace, decision.name
        for world in (self._recorded, self._changed):
            world.figures.outcomes[decision.outcome] += 1
        changed = result
        if key in self._recorded.bindings:
            if key in self._changed_bindings:
                changed = self._less(key, result)
            for world, outcome in ((self._recorded, result), (self._changed, changed)):
                self._settle(world, key, outcome, world.bindings[key].unit)
            if key in self._changed_bindings:
                self._keep(key, *self._changed_bindings[key])
        self._compare(decision, result, changed)

    def _less(self, key: BindingName, result: _Result) -> _Result:
        """Return the result with the change: the lost replicas are taken from its clusters."""
        if result.clusters is None:
            return result
        rest = {target.name: target.replicas for target in result.clusters}
        was = self._recorded.bindings[key].clusters
        lost = {target.name: max(0, target.replicas - rest.get(target.name, 0)) for target in was}
        now = (
            replace(target, replicas=target.replicas - lost.get(target.name, 0))
            for target in self._changed.bindings[key].clusters
        )
        clusters = tuple(target for target in now if target.replicas > 0)
        return result._replace(clusters=clusters)

    def _compare(self, decision: TracedDecision, recorded: _Result, changed: _Result) -> None:
        self._digest.update(canonical([decision.id, changed.plain()]))
        if changed == recorded:
            return
        self._counts["different"] += 1
        if len(self._different) < MAX_DIFFERENT:
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
        """Let bindings leave clusters in which they are only by the change."""
        last, self._fleet = self._fleet, fleet
        if last is None or fleet is last:
            return
        if (last.to_leave, last.fleet.names) == (fleet.to_leave, fleet.fleet.names):
            return
        for key, entry in [*self._changed_bindings.items()]:
            was = _names(self._recorded.bindings[key].clusters)
            standing = self._changed.bindings[key]
            binding = replace(entry.inputs.binding, clusters=standing.clusters)
            evicting = evicting_taints(binding, fleet.fleet, self._now)
            gone = _names(standing.clusters) - fleet.fleet.index.keys()
            if (evicting.keys() | gone) - was:
                self._decide_again(key, entry, leaving(binding, evicting))

    def _retry(self) -> None:
        """Try bindings that wait by the change, in the order of the queue, if there may be room."""
        is_late = self._now - self._retried_at >= RETRY_SECONDS
        if not (self._has_room and is_late and self._waiting):
            return
        self._has_room, self._retried_at = False, self._now
        open_units = {unit for unit in self._waiting if self._has_more(unit)}
        waiting = [
            (
                -self._changed_bindings[key].inputs.binding.priority,
                self._changed.bindings[key].waits_since or 0.0,
                key,
            )
            for unit in open_units
            for key in self._waiting[unit]
        ]
        for _, _, key in sorted(waiting):
            entry = self._changed_bindings[key]
            if entry.unit not in open_units:
                continue
            clusters = self._changed.bindings[key].clusters
            binding = replace(entry.inputs.binding, clusters=clusters)
            if not self._decide_again(key, entry, binding):
                open_units.remove(entry.unit)
                self._refused[entry.unit] = _Refused(self._fleet, self._available_c(entry.unit))

    def _has_more(self, unit: UnitAmounts) -> bool:
        """Whether some cluster takes more such units than at the last refusal."""
        refused = self._refused.get(unit)
        if refused is None or refused.fleet is not self._fleet:
            return True
        left_c = self._available_c(unit)
        return len(left_c) != len(refused.left_c) or bool((left_c > refused.left_c).any())

    def _decide_again(self, key: BindingName, entry: _ChangedBinding, binding: Binding) -> bool:
        """Decide a binding because of the change; return whether it moved."""
        available = self._available(entry.unit)
        fleet = self._fleet
        if fleet is None or len(fleet.fleet) != len(available.replicas_c):
            # Clusters came or went since a binding of this kind was decided.
            return False
        inputs = replace(entry.inputs, binding=binding, fleet=fleet.fleet)
        again = decide_again(inputs, RecordedCapacity(available), self._now)
        if not again.is_placed or again.clusters == self._changed.bindings[key].clusters:
            return False
        self._counts["retried"] += 1
        self._settle(self._changed, key, _Result.of(again), entry.unit)
        self._keep(key, inputs, entry.unit)
        self._digest.update(canonical([key, _Result.of(again).plain()]))
        return True


def _names(clusters: Iterable[TargetCluster]) -> frozenset[str]:
    return frozenset(target.name for target in clusters)
