"""Waits, over the API, for what the story goes on with.

Must not wait for ever, nor for a program that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from time import monotonic, sleep

from federation.client import BlockingClient, Client
from federation.demo.programs import DemoFailed, Programs
from federation.model.placement import binding_key

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
