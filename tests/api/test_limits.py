"""Shares of callers: one token takes all that it can, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.model.errors import LimitExceeded
from federation.services.pace import Shares
from federation.v1.scoring_pb2 import ScoreNodesRequest
from lab.control_planes import Plane, refused
from lab.patience import until
from tests.api.calls import VIEWER, code_of, made

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED
# As the real ones are to each other, and small enough to be taken quickly.
SMALL = {"calls": 40, "cluster_watches": 16, "binding_watches": 16, "scores": 9, "simulations": 5}


@pytest_asyncio.fixture(loop_scope="module")
async def small(api: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plane]:
    parts = api.plane.parts
    shares = {
        **parts.gate.shares.by_name,
        "cluster_watches": parts.cluster_watches.shares,
        "binding_watches": parts.binding_watches.shares,
    }
    for name, limit in SMALL.items():
        monkeypatch.setattr(shares[name], "limit", limit)
    yield api
    # Places of calls that ended are free again soon.
    for share in shares.values():
        await until(partial(_used, share), lambda used: used == 0)


async def _used(share: Shares) -> int:
    return share.used


async def _opened(caller: Any, method: str) -> list[Any]:
    """Open watches until one is refused."""
    watches: list[Any] = []
    while True:
        watch = caller.watch(method)
        code = await code_of(watch.read())
        if code is not OK:
            assert code is EXHAUSTED
            return watches
        watches.append(watch)


async def test_one_viewer_that_takes_all_watches_and_calls_leaves_others_theirs(
    small: Plane,
) -> None:
    greedy, _ = await made(small, VIEWER, name="greedy")
    other, _ = await made(small, VIEWER, name="other")
    watches = [
        watch
        for method in ("WatchClusters", "WatchBindings")
        for watch in await _opened(greedy, method)
    ]
    assert len(watches) == 16
    large = ScoreNodesRequest(configuration="x" * 60_000)
    scores = [
        asyncio.ensure_future(code_of(greedy.ask("ScoreNodes", **_fields(large))))
        for _ in range(60)
    ]
    mine = await asyncio.gather(
        *(code_of(other.ask(method)) for method in ("ListClusters", "ListBindings", "ListQueue")),
        code_of(small.admin.ask("ListTokens")),
    )
    assert set(mine) == {OK}
    for method in ("WatchClusters", "WatchBindings"):
        watch = other.watch(method)
        assert await watch.read() is not grpc.aio.EOF
        watch.cancel()
    assert EXHAUSTED in await asyncio.gather(*scores)
    # The watches of the greedy one go on: a share ends nothing that runs.
    assert not any(watch.done() for watch in watches)
    for watch in watches:
        watch.cancel()


def _fields(request: ScoreNodesRequest) -> dict[str, Any]:
    return {"configuration": request.configuration}


async def test_shares_are_among_the_metrics(small: Plane) -> None:
    page, _ = await small.plane.parts.metrics_pages().page("")
    assert b'fedsched_limit{limit="calls"} 40.0' in page
    assert b'fedsched_limit_used{limit="cluster_watches"} 0.0' in page


@pytest.mark.parametrize("actors", range(1, 8))
def test_each_of_n_actors_has_a_part_of_n_plus_one(actors: int) -> None:
    shares = Shares(840, "calls")
    names = [f"actor {number}" for number in range(actors)]
    taken = dict.fromkeys(names, 0)
    is_refused = dict.fromkeys(names, False)
    while not all(is_refused.values()):
        for name in names:
            try:
                shares.take(name)
                taken[name] += 1
            except LimitExceeded:
                is_refused[name] = True
    assert set(taken.values()) == {840 // (actors + 1)}
    for name in names:
        for _ in range(taken[name]):
            shares.give_back(name)
    assert shares.used == 0


def test_the_first_one_of_an_actor_is_always_within_its_share() -> None:
    shares = Shares(3, "calls")
    for name in ("a", "b", "c"):
        shares.take(name)
    with pytest.raises(LimitExceeded):
        shares.take("d")


async def test_refusals_name_what_the_caller_has(small: Plane) -> None:
    greedy, _ = await made(small, VIEWER, name="names")
    watches = await _opened(greedy, "WatchClusters")
    refusal = await refused(greedy.watch("WatchClusters").read())
    assert "8 watches" in refusal.message
    for watch in watches:
        watch.cancel()
