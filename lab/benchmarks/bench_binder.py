"""How many pending pods a second the binder binds, at an API server on the same machine.

The server is a process of its own, as API servers are; both share the cores this one may use.
Events are written too, but not waited for.
"""

# ruff: noqa: E402 - the tests are found once the path is set

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab.benchmarks.measuring import OPTIONS, arguments, chosen
from lab.binders import binder_at, cluster_of, pending
from lab.kubeapi.documents import node
from lab.kubeapi.resources import PODS
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from lab.verdicts import Verdicts, at_least

NODES = 500
WANTED = chosen(2_000, quick=100)
LEAST_PER_SECOND = 200.0


class Bindings:
    """Counts pods that got a node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = cluster.version
        self._count = 0
        self._changed = threading.Condition()
        cluster.subscribe(self._count_new)

    def wait_for(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count >= count)

    def _count_new(self) -> None:
        # Writers come here with the cluster's lock in their hands: it is the first for all.
        with self._cluster.lock, self._changed:
            for change in self._cluster.changes_after(self._version):
                self._version = change.version
                if change.resource is PODS and change.after is not None:
                    self._count += "nodeName" in change.after["spec"]
            self._changed.notify_all()


def serve(kubeconfig: Path) -> None:
    """Serve; make the pods when a line comes in, and say how long binding them took."""
    cluster = cluster_of(*(node(f"node-{number:03}") for number in range(NODES)))
    bindings = Bindings(cluster)
    with KubeApiServer(cluster) as server:
        server.kubeconfig(kubeconfig)
        cluster.put(pending("first", cpu="100m"))
        print("serving", flush=True)
        bindings.wait_for(1)
        started = time.perf_counter()
        for number in range(WANTED):
            cluster.put(pending(f"p{number:04}", cpu="100m"))
        bindings.wait_for(1 + WANTED)
        print(WANTED / (time.perf_counter() - started), flush=True)
        sys.stdin.read()


async def measure(kubeconfig: Path) -> tuple[float, float]:
    """Pods bound a second, and CPU seconds of the binder, which a busy machine does not change."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, str(kubeconfig), *OPTIONS),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    try:
        await server.stdout.readline()
        started = time.process_time()
        async with binder_at(kubeconfig):
            per_second = float(await server.stdout.readline())
            return per_second, time.process_time() - started
    finally:
        server.kill()
        await server.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        per_second, cpu_seconds = asyncio.run(measure(Path(folder) / "kubeconfig"))
    figures = Verdicts("bench_binder")
    goal = at_least(LEAST_PER_SECOND)
    figures.row(f"binder, pods bound on {NODES} nodes", per_second, "/s", goal=goal)
    figures.row("CPU of each", cpu_seconds / WANTED * 1e3, "ms")


if __name__ == "__main__":
    if arguments():
        serve(Path(arguments()[0]))
    else:
        main()
