"""Waits, over the API, for what the story goes on with.

Must not wait for ever, nor for a program that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from time import monotonic, sleep

from federation.client import BlockingClient, Client
from federation.demo.programs import DemoFailed, Programs
from federation.model.cluster import UNREACHABLE_KEY
from federation.model.placement import binding_key
from federation.model.readable import plural

AWAIT_SECONDS = 60.0


def await_reports(programs: Programs, client: BlockingClient, clusters: Sequence[str]) -> None:
    """Until each of the clusters was reported."""

    async def lacking(api: Client) -> str:
        fleet = await api.list_clusters()
        reported = {c.metadata.name for c in fleet if c.status.agent.report_sequence > 0}
        missing = sorted(set(clusters) - reported)
        return f"no report from {', '.join(missing)}" if missing else ""

    _await(programs, client, lacking)


def await_placed(programs: Programs, client: BlockingClient, namespace: str) -> str:
    """Until a binding of the namespace has a place; its key."""
    placed: list[str] = []

    async def lacking(api: Client) -> str:
        bindings = await api.list_bindings(namespace)
        placed.extend(binding_key(namespace, b.metadata.name) for b in bindings if b.spec.clusters)
        return "" if placed else f"no binding in {namespace} has a place"

    _await(programs, client, lacking)
    return placed[0]


def await_clusters(
    programs: Programs,
    client: BlockingClient,
    binding: str,
    holds: Callable[[Collection[str]], bool],
) -> Sequence[str]:
    """Until ``holds`` of the clusters where the binding is; these."""
    clusters: list[str] = []

    async def lacking(api: Client) -> str:
        namespace, name = binding.split("/")
        answer = await api.get_binding(namespace, name)
        clusters[:] = (each.name for each in answer.binding.spec.clusters)
        return "" if holds(clusters) else f"{binding} is in {', '.join(clusters) or 'no cluster'}"

    _await(programs, client, lacking)
    return clusters


def await_running(programs: Programs, client: BlockingClient, binding: str) -> None:
    """Until agents have seen a pod on a node for every replica of the binding, no pod that it had
    before besides, and none leaves.
    """

    async def lacking(api: Client) -> str:
        answer = await api.get_binding(*binding.split("/"))
        waiting = sum(each.outstanding for each in answer.reservations)
        leaving = [each.from_cluster for each in answer.binding.spec.graceful_eviction_tasks]
        if leaving:
            return f"{binding} has not left {', '.join(leaving)}"
        if waiting:
            are = "is" if waiting == 1 else "are"
            return f"{plural(waiting, 'replica')} of {binding} {are} on no node"
        too_many = sum(max(0, each.bound - each.replicas) for each in answer.reservations)
        return f"{binding} has {plural(too_many, 'pod')} too many" if too_many else ""

    _await(programs, client, lacking)


def await_heard(programs: Programs, client: BlockingClient, cluster: str) -> None:
    """Until the agent of the cluster is heard again, and nothing says that it is lost."""

    async def lacking(api: Client) -> str:
        found = await api.get_cluster(cluster)
        lost = any(each.key == UNREACHABLE_KEY for each in found.spec.taints)
        connected = found.status.agent.connected
        return "" if connected and not lost else f"{cluster} is not back"

    _await(programs, client, lacking)


def await_files(programs: Programs, paths: Sequence[Path]) -> None:
    """Until all of them are there."""
    deadline = monotonic() + AWAIT_SECONDS
    while not all(path.exists() for path in paths):
        programs.require_running()
        if monotonic() > deadline:
            missing = ", ".join(path.name for path in paths if not path.exists())
            raise DemoFailed(f"after {AWAIT_SECONDS:g} s: {missing} not there")
        sleep(0.05)


def _await(
    programs: Programs, client: BlockingClient, lacking: Callable[[Client], Awaitable[str]]
) -> None:
    """Asks again and again, until nothing is lacking."""
    deadline = monotonic() + AWAIT_SECONDS
    while True:
        programs.require_running()
        missing = client.call(lacking)
        if not missing:
            return
        if monotonic() > deadline:
            raise DemoFailed(f"after {AWAIT_SECONDS:g} s: {missing}")
        sleep(0.1)
