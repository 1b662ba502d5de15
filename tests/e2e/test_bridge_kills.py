"""kill -9 of bridge, control plane and Karmada's API server: the end is as if nothing had been."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc

from federation.v1.scheduling_pb2 import ListBindingsRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from tests.bridges import LOCAL, bridge_process, control_plane
from tests.e2e.servers import Server
from tests.karmadas import DYNAMIC, Karmada, binding, member, new_karmada_server
from tests.kubeapi.resources import RESOURCE_BINDINGS, Document, Resource
from tests.patience import PATIENCE_SECONDS

BINDINGS = 60
MEMBERS = ("m1", "m2", "m3")
POLL_SECONDS = 0.05
PLACEMENT = {"replicaScheduling": DYNAMIC, "spreadConstraints": [
    {"spreadByField": "cluster", "minGroups": 2, "maxGroups": 3}
]}  # fmt: skip


def await_until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(POLL_SECONDS)


class World:
    """A Karmada, a control plane of its own process, and bridges that come and go."""

    def __init__(self, karmada: Karmada, folder: Path, database_url: str) -> None:
        self.karmada = karmada
        self.folder = folder
        self.database_url = database_url
        self.listen = LOCAL
        self.written: dict[str, list[object]] = defaultdict(list)
        self._leases = itertools.count()
        karmada.server.writer.webhooks.append(self._see)

    def _see(self, _: Resource, document: Document) -> None:
        """Every change of a binding's spec or metadata, before it is stored."""
        clusters = document["spec"].get("clusters")
        if clusters:
            self.written[document["metadata"]["name"]].append(clusters)

    @contextmanager
    def plane(self) -> Iterator[Server]:
        """Again at the same address."""
        variables = {"FEDERATION_DATABASE_URL": self.database_url}
        with control_plane(self.folder, listen=self.listen, **variables) as (server, endpoint):
            self.listen = endpoint
            yield server

    def bridge(self) -> AbstractContextManager[subprocess.Popen[str]]:
        lease = f"bridge-{next(self._leases)}"
        return bridge_process(self.karmada, self.folder, self.listen, lease)

    def settled(self) -> list[str]:
        there = {each["metadata"]["name"] for each in self.karmada.cluster.all(RESOURCE_BINDINGS)}
        return [name for name in names() if name in there and self.karmada.is_settled(name)]

    def await_settled(self, count: int) -> None:
        """At least so many of the bindings."""
        log = self.folder / "bridge.log"
        await_until(
            lambda: len(self.settled()) >= count,
            lambda: (self.settled(), log.read_text(encoding="utf-8")[-5000:]),
        )

    def stored(self) -> dict[str, dict[str, int]]:
        """Where the control plane has them."""
        token = (self.folder / "admin.token").read_text(encoding="ascii").strip()
        with grpc.insecure_channel(self.listen) as channel:
            stub: Any = SchedulingStub(channel)
            answer = stub.ListBindings(
                ListBindingsRequest(page_size=1000),
                metadata=(("authorization", f"Bearer {token}"),),
                timeout=PATIENCE_SECONDS,
            )
        return {
            each.metadata.name: {share.name: share.replicas for share in each.spec.clusters}
            for each in answer.bindings
        }


def names() -> list[str]:
    return [f"web-{number:02}" for number in range(BINDINGS)]


def test_whatever_is_killed_every_binding_is_placed_once(database_url: str, tmp_path: Path) -> None:
    with new_karmada_server() as server, ExitStack() as stack:
        karmada = Karmada(server)
        world = World(karmada, tmp_path, database_url)
        karmada.put(*(member(name, cpu="400") for name in MEMBERS))
        plane = stack.enter_context(world.plane())
        some, others, rest = names()[:20], names()[20:40], names()[40:]
        karmada.put(*(binding(name, placement=PLACEMENT) for name in some))
        with world.bridge():
            # Killed while it decides and writes.
            world.await_settled(1)
        karmada.put(*(binding(name, placement=PLACEMENT) for name in others))
        with world.bridge():
            world.await_settled(21)
            server.stop()
            karmada.put(*(binding(name, placement=PLACEMENT) for name in rest))
            server.start()
            world.await_settled(41)
            plane.kill()
            stack.enter_context(world.plane())
            world.await_settled(BINDINGS)
        assert {name: sum(karmada.targets(name).values()) for name in names()} == dict.fromkeys(
            names(), 4
        )
        assert world.stored() == {name: karmada.targets(name) for name in names()}
        # Nothing was placed twice with other content.
        assert not {
            name: told for name, told in world.written.items() if told != told[:1] * len(told)
        }
        # At rest nothing is written, by one that begins anew either.
        so_far = len(karmada.writes())
        with world.bridge():
            karmada.put(binding("last", placement=PLACEMENT))
            await_until(lambda: karmada.is_settled("last"), lambda: karmada.binding("last"))
        assert {each.name for each in karmada.writes()[so_far:]} == {"last"}
