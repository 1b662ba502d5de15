"""A bridge, its control plane and Karmada's API server are killed at random points of a sequence.

Two sequences of the same steps: one that nothing disturbs, and one in which something is killed
whenever so much has been done as the seed says. Must not ask the bridge what it has done: Karmada
says that, and the control plane what it keeps.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from federation.bridge.objects import APPLIED_PLACEMENT
from federation.v1.scheduling_pb2 import ListBindingsRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.bridges import LOCAL, bridge_process, control_plane
from lab.karmadas import (
    DYNAMIC,
    EVERYWHERE,
    Karmada,
    binding,
    is_settled,
    member,
    new_karmada_server,
)
from lab.kubeapi.resources import RESOURCE_BINDINGS, Document, Resource
from lab.patience import PATIENCE_SECONDS
from lab.servers import Server
from lab.verdicts import Result

MEMBERS: Final = ("m1", "m2", "m3")
POLL_SECONDS: Final = 0.05
STATIC: Final = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Weighted",
    "weightPreference": {
        "staticWeightList": [
            {"targetCluster": {"clusterNames": [name]}, "weight": weight}
            for name, weight in zip(MEMBERS, (1, 1, 2), strict=True)
        ]
    },
}
SPREAD: Final = [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 3}]
# None but the first depends on what others took, or on who comes first.
PLACEMENTS: Final[Sequence[Document]] = (
    {"replicaScheduling": DYNAMIC, "spreadConstraints": SPREAD},
    {"replicaScheduling": STATIC},
    {**EVERYWHERE, "clusterAffinity": {"clusterNames": ["m1", "m3"]}},
    {"replicaScheduling": DYNAMIC, "clusterAffinity": {"clusterNames": ["m2"]}},
)
SCALED, GONE = 1, 2
REPLICAS: Final = 4

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgePlan:
    """How many bindings, and how often something is killed meanwhile; each kind at least once."""

    bindings: int = 500
    kills: int = 12
    seed: int = 1


def disturb(folder: Path, database_url: str, plan: BridgePlan) -> Result:
    """The two sequences, and all in which they differ; what else must never be."""
    with new_karmada_server() as server, ExitStack() as stack:
        world = _World(Karmada(server), folder, database_url, stack)
        calm = world.pass_through("calm", plan, [])
        chance = random.Random(plan.seed)
        kinds = ["bridge", "plane", "api"]
        kinds += chance.choices(kinds, k=max(0, plan.kills - len(kinds)))
        chance.shuffle(kinds)
        moments = sorted(chance.sample(range(1, plan.bindings), len(kinds)))
        wild = world.pass_through("wild", plan, list(zip(moments, kinds, strict=True)))
        violations = [
            f"undisturbed {calm.get(number)}, disturbed {wild.get(number)}"
            for number in sorted(calm.keys() | wild.keys())
            if calm.get(number) != wild.get(number)
        ]
        violations += world.disagreements() + world.written_twice() + world.unrest()
        counts: dict[str, float] = {
            "bindings": plan.bindings,
            **{f"{kind} killed": count for kind, count in sorted(Counter(kinds).items())},
            "placed at the end": len(wild),
            "patches": len(world.karmada.writes()),
        }
    return Result(counts=counts, violations=violations)


def _await(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(POLL_SECONDS)


class _World:
    """A Karmada, a control plane of its own process, and bridges that come and go."""

    def __init__(self, karmada: Karmada, folder: Path, database_url: str, stack: ExitStack) -> None:
        self.karmada = karmada
        self._folder = folder
        self._variables = {"FEDERATION_DATABASE_URL": database_url}
        self._stack = stack
        self._listen = LOCAL
        self._written: dict[tuple[str, int], list[object]] = defaultdict(list)
        self._leases = itertools.count()
        karmada.server.writer.webhooks.append(self._see)
        karmada.put(*(member(name, cpu="90000", pods="90000") for name in MEMBERS))
        self._plane = self._new_plane()
        self._bridge = stack.enter_context(self._new_bridge())

    def pass_through(
        self, prefix: str, plan: BridgePlan, kills: list[tuple[int, str]]
    ) -> dict[int, State]:
        """Bindings arrive in parts, are scaled, and deleted; what becomes of them, by number."""
        numbers = range(plan.bindings)
        half = plan.bindings // 2
        self._arrive(prefix, numbers[:half])
        kills = self._settle(prefix, numbers[:half], half // 2, kills)
        for number in numbers[:half]:
            if number % 5 == SCALED:
                self.karmada.edit(_name(prefix, number), replicas=2 * REPLICAS)
            elif number % 5 == GONE:
                self.karmada.cluster.remove(self.karmada.binding(_name(prefix, number)))
        self._arrive(prefix, numbers[half:])
        left = [each for each in numbers if each >= half or each % 5 != GONE]
        kills = self._settle(prefix, left, len(left), kills)
        for _, kind in kills:
            self._kill(kind)
        self._settle(prefix, left, len(left), [])
        return {number: self._state(_name(prefix, number)) for number in left}

    def disagreements(self) -> list[str]:
        """Where the control plane has other targets than Karmada; it forgets what is deleted."""
        names = self._names()

        def differences() -> list[str]:
            stored = self._stored()
            return [
                f"{name} is in {self.karmada.targets(name)}, and stored in {stored.get(name)}"
                for name in sorted(names)
                if stored.get(name) != self.karmada.targets(name)
            ]

        _await(lambda: self._stored().keys() == names, lambda: self._stored().keys() ^ names)
        _await(lambda: not differences(), differences)
        return differences()

    def written_twice(self) -> list[str]:
        """What was patched again with other content, though nobody had asked for something else."""
        return [
            f"{name} with {replicas} replicas was written as {contents}"
            for (name, replicas), contents in self._written.items()
            if any(each != contents[0] for each in contents)
        ]

    def unrest(self) -> list[str]:
        """At rest nothing is written, by one that begins anew either."""
        so_far = len(self.karmada.writes())
        self._kill("bridge")
        self.karmada.put(binding("last", placement=PLACEMENTS[1]))
        _await(lambda: self.karmada.is_settled("last"), self._log)
        return [
            f"{each.name} was written at rest"
            for each in self.karmada.writes()[so_far:]
            if each.name != "last"
        ]

    def _see(self, resource: Resource, document: Document) -> None:
        """Every change of a binding's spec or metadata, before it is stored."""
        if resource is not RESOURCE_BINDINGS:
            return
        spec, name = document["spec"], document["metadata"]["name"]
        clusters = spec.get("clusters")
        if clusters != self.karmada.binding(name)["spec"].get("clusters"):
            self._written[name, spec["replicas"]].append(clusters)

    def _arrive(self, prefix: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            placement = PLACEMENTS[number % len(PLACEMENTS)]
            self.karmada.put(binding(_name(prefix, number), replicas=REPLICAS, placement=placement))

    def _settle(
        self, prefix: str, numbers: Sequence[int], count: int, kills: list[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """Until so many of them are; those kills that are still to come."""
        names = {_name(prefix, number) for number in numbers}

        def settled() -> int:
            if self._bridge.poll() is not None:
                # It loses its lease where it gets no turn for long, and is started again.
                self._bridge = self._stack.enter_context(self._new_bridge())
            every = self.karmada.cluster.all(RESOURCE_BINDINGS)
            done = sum(each["metadata"]["name"] in names and is_settled(each) for each in every)
            while kills and done >= kills[0][0]:
                self._kill(kills.pop(0)[1])
            return done

        # Each kill costs its time, and a busy machine takes more of it.
        best, deadline = (-1, 0), time.monotonic() + PATIENCE_SECONDS
        while (done := settled()) < count:
            if (progress := (done, -len(kills))) > best:
                best, deadline = progress, time.monotonic() + PATIENCE_SECONDS
            assert time.monotonic() < deadline, self._log()
            time.sleep(POLL_SECONDS)
        return kills

    def _kill(self, kind: str) -> None:
        """kill -9, and start again at once."""
        if kind == "bridge":
            self._bridge.kill()
            self._bridge = self._stack.enter_context(self._new_bridge())
        elif kind == "plane":
            self._plane.kill()
            self._plane = self._new_plane()
        else:
            self.karmada.server.stop()
            self.karmada.server.start()

    def _new_plane(self) -> Server:
        """Again at the same address."""
        plane = control_plane(self._folder, listen=self._listen, **self._variables)
        server, self._listen = self._stack.enter_context(plane)
        return server

    def _new_bridge(self) -> AbstractContextManager[subprocess.Popen[str]]:
        # The lease of one that was killed runs out slowly.
        lease = f"bridge-{next(self._leases)}"
        return bridge_process(self.karmada, self._folder, self._listen, lease)

    def _state(self, name: str) -> State:
        """All that karmada-scheduler would have written, but for times."""
        document, condition = self.karmada.binding(name), self.karmada.condition(name)
        status, targets = document["status"], self.karmada.targets(name)
        is_shared = document["spec"]["placement"] == PLACEMENTS[0]
        return {
            "targets": sum(targets.values()) if is_shared else targets,
            "applied": json.loads(document["metadata"]["annotations"][APPLIED_PLACEMENT]),
            "condition": {key: condition[key] for key in ("status", "reason", "message")},
            "scheduled": "lastScheduledTime" in status,
        }

    def _names(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.karmada.cluster.all(RESOURCE_BINDINGS)}

    def _stored(self) -> dict[str, dict[str, int]]:
        token = (self._folder / "admin.token").read_text(encoding="ascii").strip()
        stored: dict[str, dict[str, int]] = {}
        page = ""
        with grpc.insecure_channel(self._listen) as channel:
            stub: Any = SchedulingStub(channel)
            while True:
                answer = stub.ListBindings(
                    ListBindingsRequest(page_size=1000, page_token=page),
                    metadata=(("authorization", f"Bearer {token}"),),
                    timeout=PATIENCE_SECONDS,
                )
                stored |= {
                    each.metadata.name: {share.name: share.replicas for share in each.spec.clusters}
                    for each in answer.bindings
                }
                if not (page := answer.next_page_token):
                    return stored

    def _log(self) -> str:
        return (self._folder / "bridge.log").read_text(encoding="utf-8")[-5000:]


def _name(prefix: str, number: int) -> str:
    return f"{prefix}-{number:04}"
