"""Inputs of decisions, for replays: a small part of each decision, and bodies that many share.

A body is named by the SHA-256 of its content, and kept once. Must not talk to the database.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from federation.history.binding_rows import BINDINGS, SURROUNDINGS
from federation.history.bodies import Body, deflated, inflated, read_body
from federation.history.cluster_rows import CLUSTERS, DEFAULT_MODEL_ROW, KeptClusterRow
from federation.model.arrays import read_only
from federation.model.cluster import Cluster
from federation.model.errors import PreconditionFailed
from federation.model.placement import Binding
from federation.model.reasons import Reason, stored_reason
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Column, Fleet, ValueCache
from federation.scheduler.plugins.profile import Filter, Permit, Profile, Profiles, Score
from federation.scheduler.plugins.registry import IN_TREE, ExtensionPoint, Plugin
from federation.scheduler.trace import from_plain, to_plain

# Clusters whose specs are kept together: what changes in one is written with these.
CLUSTERS_PER_PART: Final = 100
# A fleet, and the same at a time when some of its clusters are silent.
FLEETS_KNOWN: Final = 4
# Unpacked fleets and profiles.
BODIES_KNOWN: Final = 16

Unpacked = TypeVar("Unpacked", Fleet, Profile)


@dataclass(frozen=True, slots=True, eq=False)
class SharedBodies:
    """A body by its name, with those that it names."""

    name: bytes
    bodies: Mapping[bytes, bytes]


class Packed(NamedTuple):
    """A body, and those that it names and shares with others."""

    body: bytes
    shared: tuple[SharedBodies, ...] = ()


class KeptInputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part that a decision keeps itself: the binding, the names of the bodies of fleet and
    profile, what was known of other bindings, and why shares found no room.

    ``binding`` and ``surroundings`` are row structs as builtins: who shows a trace needs neither.
    """

    binding: dict[str, Any]
    fleet: bytes
    profile: bytes
    surroundings: dict[str, Any] = {}
    refused: dict[str, str] = {}


class _FleetBody(Body, frozen=True):
    """The names of its parts, and why clusters got nothing new when that was decided."""

    parts: tuple[bytes, ...]
    unready: tuple[str, ...]
    unready_c: tuple[int, ...]


class _ClustersBody(Body, frozen=True):
    clusters: tuple[KeptClusterRow, ...]


class _PluginUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plugin of a profile; ``args`` is None where it takes none."""

    name: str
    weight: int = 0
    args: dict[str, Any] | None = None


class _ProfileBody(Body, frozen=True):
    name: str
    filters: tuple[_PluginUse, ...]
    scores: tuple[_PluginUse, ...]
    permits: tuple[_PluginUse, ...] = ()


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_FLEETS: Final = msgspec.msgpack.Decoder(_FleetBody)
_CLUSTERS: Final = msgspec.msgpack.Decoder(_ClustersBody)
_PROFILES: Final = msgspec.msgpack.Decoder(_ProfileBody)


class InputPacker:
    """Packs inputs, and remembers what it packed last: most decisions are made on the same fleet.

    Safe in any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # With what they were made of: without a reference its identity may be given away.
        self._fleets: dict[int, tuple[Fleet, SharedBodies]] = {}
        self._parts: dict[tuple[int, ...], tuple[tuple[Cluster, ...], bytes, bytes]] = {}
        self._profiles: ValueCache[Profile, SharedBodies] = ValueCache()

    def packed(
        self, inputs: DecisionInputs, refused: Mapping[str, Reason]
    ) -> tuple[KeptInputs, tuple[SharedBodies, ...]]:
        """Return the part that the decision keeps, and the bodies that it names."""
        with self._lock:
            fleet = self._fleet(inputs.fleet)
            profile = self._profiles.answer(inputs.profile, partial(_profile, inputs.profile))
        own_part = KeptInputs(
            binding=_binding(inputs.binding),
            fleet=fleet.name,
            profile=profile.name,
            # The trace has the triggers.
            surroundings=SURROUNDINGS.builtins(replace(inputs.surroundings, triggers=())),
            refused={name: str(reason) for name, reason in refused.items()},
        )
        return own_part, (fleet, profile)

    def _fleet(self, fleet: Fleet) -> SharedBodies:
        remembered = self._fleets.get(id(fleet))
        if remembered is None:
            if len(self._fleets) >= FLEETS_KNOWN:
                self._fleets.pop(next(iter(self._fleets)))
            remembered = self._fleets[id(fleet)] = fleet, self._packed_fleet(fleet)
        return remembered[1]

    def _packed_fleet(self, fleet: Fleet) -> SharedBodies:
        parts_before, self._parts = self._parts, {}
        for start in range(0, len(fleet), CLUSTERS_PER_PART):
            clusters = fleet.clusters[start : start + CLUSTERS_PER_PART]
            key = tuple(map(id, clusters))
            self._parts[key] = parts_before.get(key) or (clusters, *_clusters(clusters))
        bodies = {name: body for _, name, body in self._parts.values()}
        name, body = _named(
            _FleetBody(
                v=_FleetBody.newest,
                parts=tuple(name for _, name, _ in self._parts.values()),
                unready=tuple(map(str, fleet.unready.values)),
                unready_c=tuple(fleet.unready.code_c.tolist()),
            )
        )
        return SharedBodies(name, {**bodies, name: body})


INPUTS: Final = InputPacker()


def part_names(fleet_body: bytes) -> tuple[bytes, ...]:
    """The bodies that a fleet's body names. Raises NewerBody."""
    return read_body(_FLEETS, inflated(fleet_body)[0], "fleets").parts


class InputReader:
    """Unpacks inputs, and remembers the fleets and profiles that it unpacked last.

    Plugins that do not come with the scheduler are found in ``profiles``. For one thread.
    """

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._known: dict[bytes, Fleet | Profile] = {}

    def unpacked(self, own_part: KeptInputs, bodies: Mapping[bytes, bytes]) -> DecisionInputs:
        """Return what ``InputPacker`` packed.

        Raises KeyError where a body is missing, PreconditionFailed where a plugin is in no profile,
        and NewerBody.
        """
        fleet = self._known.get(own_part.fleet)
        if not isinstance(fleet, Fleet):
            fleet = self._remember(own_part.fleet, _unpacked_fleet(bodies[own_part.fleet], bodies))
        profile = self._known.get(own_part.profile)
        if not isinstance(profile, Profile):
            unpacked = _unpacked_profile(bodies[own_part.profile], self._profiles)
            profile = self._remember(own_part.profile, unpacked)
        return DecisionInputs(
            binding=BINDINGS.read(own_part.binding),
            fleet=fleet,
            profile=profile,
            surroundings=SURROUNDINGS.read(own_part.surroundings),
        )

    def _remember(self, name: bytes, unpacked: Unpacked) -> Unpacked:
        if len(self._known) >= BODIES_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[name] = unpacked
        return unpacked


def _binding(binding: Binding) -> dict[str, Any]:
    """Return the builtins that are kept: without what a caller had read of the binding."""
    row = BINDINGS.pack(binding)
    row = msgspec.structs.replace(row, stored_id=0, expected_version=None)
    plain: dict[str, Any] = msgspec.to_builtins(row)
    return plain


def _named(body: object) -> tuple[bytes, bytes]:
    encoded = _ENCODER.encode(body)
    return hashlib.sha256(encoded).digest(), deflated(encoded)


def _clusters(clusters: Iterable[Cluster]) -> tuple[bytes, bytes]:
    return _named(_ClustersBody(v=_ClustersBody.newest, clusters=tuple(map(_cluster, clusters))))


def _cluster(cluster: Cluster) -> KeptClusterRow:
    """Without what no plugin of ours reads and changes often, or is large."""
    return msgspec.structs.replace(
        CLUSTERS.pack(cluster), model=DEFAULT_MODEL_ROW, generation=1, resource_version=0
    )


def _unpacked_fleet(packed: bytes, bodies: Mapping[bytes, bytes]) -> Fleet:
    body = read_body(_FLEETS, inflated(packed)[0], "fleets")
    fleet = Fleet.of(
        CLUSTERS.unpack(cluster)
        for name in body.parts
        for cluster in read_body(_CLUSTERS, inflated(bodies[name])[0], "clusters").clusters
    )
    unready = Column(
        code_c=read_only(np.array(body.unready_c, dtype=np.int64)),
        values=tuple(map(stored_reason, body.unready)),
    )
    return replace(
        fleet,
        ready_c=read_only(unready.where(lambda reason: not reason)),
        unready=unready,
    )


def _profile(profile: Profile) -> SharedBodies:
    name, body = _named(
        _ProfileBody(
            v=_ProfileBody.newest,
            name=profile.name,
            filters=tuple(_PluginUse(step.name, 0, _args(step.run)) for step in profile.filters),
            scores=tuple(
                _PluginUse(step.name, step.weight, _args(step.run)) for step in profile.scores
            ),
            permits=tuple(_PluginUse(step.name, 0, _args(step.run)) for step in profile.permits),
        )
    )
    return SharedBodies(name, {name: body})


def _args(run: object) -> dict[str, Any] | None:
    if not isinstance(run, partial) or "args" not in run.keywords:
        return None
    plain: dict[str, Any] = to_plain(run.keywords["args"])
    return plain


def _unpacked_profile(packed: bytes, profiles: Profiles) -> Profile:
    body = read_body(_PROFILES, inflated(packed)[0], "profiles")
    active: dict[str, Callable[..., Any]] = {}
    for profile in profiles.by_name.values():
        active |= {step.name: step.run for step in profile.filters}
        active |= {step.name: step.run for step in profile.scores}
        active |= {step.name: step.run for step in profile.permits}

    def run_of(use: _PluginUse) -> Callable[..., Any]:
        plugin = IN_TREE.get(use.name) or _plugin_of(active.get(use.name))
        if plugin is None:
            raise PreconditionFailed(
                f"The decision was made with the scheduler plugin {use.name!r}, and no profile of "
                "this control plane names it.",
                reason="PLUGIN_MISSING",
            )
        if use.args is None or plugin.args is None:
            return plugin.run
        return partial(plugin.run, args=from_plain(plugin.args, use.args))

    return Profile(
        name=body.name,
        filters=tuple(Filter(name=use.name, run=run_of(use)) for use in body.filters),
        scores=tuple(
            Score(name=use.name, run=run_of(use), weight=use.weight) for use in body.scores
        ),
        permits=tuple(Permit(name=use.name, run=run_of(use)) for use in body.permits),
    )


def _plugin_of(run: Callable[..., Any] | None) -> Plugin | None:
    """The plugin that a function in a profile was made of; at which point it runs is not told."""
    if run is None:
        return None
    if isinstance(run, partial) and "args" in run.keywords:
        args = type(run.keywords["args"])
        return Plugin(point=ExtensionPoint.FILTER, run=run.func, args=args)
    return Plugin(point=ExtensionPoint.FILTER, run=run)
