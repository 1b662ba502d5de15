"""One control plane of a checkout behind its own agents: CPU of a decision by kind of load.

Runs in the checkout's own .venv (see ``lab.compare``), so it must import nothing but gRPC and the
stubs of the public API, and start nothing but the shipped programs. Prints one line of JSON.

    python -P compared_plane.py DUMPS DECISIONS KIND[,KIND]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from federation.v1 import clusters_pb2, clusters_pb2_grpc, resource_pb2, scheduling_pb2
from federation.v1.scheduling_pb2_grpc import SchedulingStub

PROGRAMS: Final = Path(sys.executable).parent
ALIKE: Final = ("m1", "m2")
UNLIKE: Final = ("m3",)
NAMESPACE: Final = "compare"
IN_FLIGHT: Final = 16
WARM_UP: Final = 60
READY_SECONDS: Final = 180.0
CALL_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 3.0
# Millicores and mebibytes.
SIZES: Final = (
    *((50, 64), (100, 128), (100, 256), (250, 256), (250, 512)),
    *((500, 512), (500, 1024), (500, 2048), (1000, 1024)),
)
LONG_SIZES: Final = (*SIZES, (1000, 2048), (1000, 4096), (2000, 4096), (2000, 8192))
LARGE_SIZES: Final = ((9000, 12_288), (12_000, 12_288))
UNLIKE_LARGE_SIZES: Final = ((8500, 8192), (10_000, 12_288), (12_000, 16_384), (14_000, 16_384))

Metadata = tuple[tuple[str, str], ...]


def load_of(kind: str, count: int) -> list[Any]:
    """The bindings of a kind of load, always the same."""
    choices = random.Random(kind)
    clusters = UNLIKE if kind == "unlike" else ALIKE
    bindings = []
    for number in range(count):
        size, replicas = choices.choice(SIZES), choices.choice((1, 2, 3))
        if kind == "same":
            size = (100, 128)
        elif kind == "full":
            size, replicas = choices.choice(LONG_SIZES), choices.choice((8, 15, 20))
        elif kind == "large" and number % 30 == 0:
            size, replicas = choices.choice(LARGE_SIZES), 1
        elif kind == "unlike" and number % 10 == 0:
            size, replicas = choices.choice(UNLIKE_LARGE_SIZES), 1
        bindings.append(_binding(f"{kind}-{number}", size, replicas, clusters))
    return bindings


def _binding(name: str, size: tuple[int, int], replicas: int, clusters: Sequence[str]) -> Any:
    cpu_millis, mebibytes = size
    resource = resource_pb2.ObjectReference(
        api_version="apps/v1", kind="Deployment", namespace=NAMESPACE, name=name
    )
    scheduling = resource_pb2.ReplicaSchedulingStrategy(
        replica_scheduling_type="Divided",
        replica_division_preference="Weighted",
        weight_preference=resource_pb2.ClusterPreferences(dynamic_weight="AvailableReplicas"),
    )
    return resource_pb2.ResourceBinding(
        metadata=resource_pb2.ObjectMeta(namespace=NAMESPACE, name=name, uid=str(uuid.uuid4())),
        spec=resource_pb2.ResourceBindingSpec(
            resource=resource,
            replicas=replicas,
            replica_requirements=resource_pb2.ReplicaRequirements(
                resource_request={"cpu": f"{cpu_millis}m", "memory": f"{mebibytes}Mi"}
            ),
            placement=resource_pb2.Placement(
                cluster_affinity=resource_pb2.ClusterAffinity(cluster_names=clusters),
                replica_scheduling=scheduling,
            ),
        ),
    )


class Programs:
    """The programs of this checkout that run, each in a session of its own, with their logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, log: str, *command: str) -> int:
        """Start a program and return its process id."""
        state = {"HOME": str(self._folder), "XDG_STATE_HOME": str(self._folder / "state")}
        # The embedded PostgreSQL's programs are not copied for each run.
        cache = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")}
        with (self._folder / log).open("wb") as output:
            process = subprocess.Popen(
                [str(PROGRAMS / command[0]), *command[1:]],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **state, **cache},
            )
        self._running.append(process)
        return process.pid

    def stop(self) -> None:
        """End all, the newest first."""
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def programs() -> Iterator[tuple[Programs, Path]]:
    """A folder that any user may enter, as PostgreSQL does not run as root, and programs in it."""
    with tempfile.TemporaryDirectory(prefix="fedsched-compare-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        running = Programs(Path(name))
        try:
            yield running, Path(name)
        finally:
            running.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A control plane that is ready, and the token of its admin."""

    pid: int
    endpoint: str
    token: str

    @property
    def metadata(self) -> Metadata:
        return (("authorization", f"Bearer {self.token}"),)

    def cpu_seconds(self) -> float:
        """CPU of the control plane and its children; PostgreSQL's is left out."""
        return _family_seconds(self.pid)


def start_plane(running: Programs, folder: Path) -> Plane:
    """Start a control plane and wait until it is ready."""
    endpoint, web = (f"127.0.0.1:{free_port()}" for _ in range(2))
    data = folder / "data"
    flags = ("--listen", endpoint, "--web-listen", web, "--data-dir", str(data), "--insecure")
    pid = running.start("plane.log", "federation", "serve", *flags)
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://{web}/readyz", timeout=2).close()
        except OSError:
            time.sleep(0.25)
            continue
        token = (data / "admin.token").read_text(encoding="ascii").strip()
        return Plane(pid=pid, endpoint=endpoint, token=token)
    raise SystemExit((folder / "plane.log").read_text(encoding="utf-8", errors="replace")[-2000:])


async def start_agents(
    running: Programs, folder: Path, dumps: Path, plane: Plane, clusters: Any
) -> None:
    """Start the shipped agents, each on a dump, and wait for the reports of all of them."""
    names = (*ALIKE, *UNLIKE)
    for name in names:
        request = clusters_pb2.CreateJoinTokenRequest(cluster=name)
        answer = await clusters.CreateJoinToken(
            request, metadata=plane.metadata, timeout=CALL_SECONDS
        )
        token = folder / f"{name}.token"
        token.touch(mode=0o600)
        token.write_text(answer.token, encoding="ascii")
        running.start(
            f"{name}.log",
            *("estimator", "run", "--cluster", name, "--endpoint", plane.endpoint, "--insecure"),
            *("--join-token-file", str(token), "--credential-file", str(folder / f"{name}.json")),
            *("--from", str(dumps / f"{name}.json")),
        )
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        listed = await clusters.ListClusters(
            clusters_pb2.ListClustersRequest(), metadata=plane.metadata, timeout=CALL_SECONDS
        )
        if sum(bool(c.status.resource_summary.allocatable) for c in listed.clusters) == len(names):
            return
        await asyncio.sleep(0.5)
    raise SystemExit("the agents did not report")


async def measure(plane: Plane, scheduling: Any, bindings: Sequence[Any]) -> dict[str, Any]:
    """Decide all bindings, some at a time: CPU and latency of a decision, and all outcomes."""
    waiting, outcomes, latencies = deque(bindings), Counter[str](), list[float]()

    async def keep_asking() -> None:
        while waiting:
            request = scheduling_pb2.ScheduleRequest(binding=waiting.popleft(), wait=False)
            asked = time.monotonic()
            try:
                answer = await scheduling.Schedule(
                    request, metadata=plane.metadata, timeout=CALL_SECONDS
                )
                outcomes[scheduling_pb2.Outcome.Name(answer.decision.outcome)] += 1
            except grpc.aio.AioRpcError as error:
                outcomes[f"{error.code().name} {(error.details() or '')[:60]}"] += 1
            latencies.append(time.monotonic() - asked)

    cpu_before, began = plane.cpu_seconds(), time.monotonic()
    await asyncio.gather(*(keep_asking() for _ in range(IN_FLIGHT)))
    cpu_seconds, lasted = plane.cpu_seconds() - cpu_before, time.monotonic() - began
    latencies.sort()
    return {
        "cpu_millis": 1000 * cpu_seconds / len(bindings),
        "per_second": len(bindings) / lasted,
        "p50_millis": 1000 * latencies[len(latencies) // 2],
        "p99_millis": 1000 * latencies[len(latencies) * 99 // 100],
        "outcomes": dict(outcomes),
    }


async def delete(plane: Plane, scheduling: Any, bindings: Sequence[Any]) -> None:
    for binding in bindings:
        request = scheduling_pb2.DeleteBindingRequest(
            namespace=NAMESPACE, name=binding.metadata.name
        )
        try:
            await scheduling.DeleteBinding(request, metadata=plane.metadata, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise


async def compared(dumps: Path, decisions: int, kinds: Sequence[str]) -> dict[str, Any]:
    """The figures of each kind; a first load warms the control plane up."""
    with programs() as (running, folder):
        plane = start_plane(running, folder)
        async with grpc.aio.insecure_channel(plane.endpoint) as channel:
            clusters: Any = clusters_pb2_grpc.ClustersStub(channel)
            scheduling: Any = SchedulingStub(channel)
            await start_agents(running, folder, dumps, plane, clusters)
            figures = {}
            for kind, count in (("same", WARM_UP), *((kind, decisions) for kind in kinds)):
                await asyncio.sleep(SETTLE_SECONDS)
                bindings = load_of(kind, count)
                figures[kind] = await measure(plane, scheduling, bindings)
                await delete(plane, scheduling, bindings)
            return figures


def _family_seconds(pid: int) -> float:
    fields = _stat(pid)
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0
    return own + sum(map(_family_seconds, _children(pid)))


def _children(pid: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields and int(fields[1]) == pid and "postgres" not in _name(int(folder.name)):
            yield int(folder.name)


def _stat(pid: int) -> Sequence[str]:
    """The fields behind the name of the program; none of a process that has ended."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _name(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/comm"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    dumps_folder, decisions_text, kinds_text = sys.argv[1:]
    kinds_named = kinds_text.split(",")
    print(json.dumps(asyncio.run(compared(Path(dumps_folder), int(decisions_text), kinds_named))))
