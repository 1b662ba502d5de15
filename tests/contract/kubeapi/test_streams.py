"""What of the fake's streams no recording can show: what happens while they are being written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lab.kubeapi.documents import pod
from lab.kubeapi.resources import PODS, Document
from lab.kubeapi.state import Cluster
from lab.kubeapi.watching import Pulse, events, opening, watch_options


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(version=10)
    made.put(pod("old"))
    return made


@asynccontextmanager
async def watching(
    cluster: Cluster, seconds: int
) -> AsyncIterator[AsyncIterator[Document | bytes]]:
    query = {
        "resourceVersion": str(cluster.version),
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(seconds),
    }
    options = watch_options(PODS, "", query)
    # Only changes wake it, however slow the machine is.
    pulse = Pulse(second=60.0)
    unsubscribe = cluster.subscribe(pulse.wake)
    try:
        opened = await opening(cluster, PODS, options, pulse)
        yield events(cluster, PODS, options, opened, pulse)
    finally:
        unsubscribe()


async def told(stream: AsyncIterator[Document | bytes]) -> tuple[str, int]:
    """The type and the version of what comes next."""
    event = await anext(stream)
    assert isinstance(event, dict)
    return event["type"], int(event["object"]["metadata"]["resourceVersion"])


async def test_a_bookmark_never_overtakes_a_change(cluster: Cluster) -> None:
    """Who goes on from a version ahead of what was told would miss a change for good."""
    # So short that the last bookmark is due from the start.
    async with watching(cluster, seconds=1) as stream:
        cluster.put(pod("a"))
        assert await told(stream) == ("ADDED", 12)
        cluster.put(pod("b"))
        assert await told(stream) == ("BOOKMARK", 12)
        assert await told(stream) == ("ADDED", 13)
