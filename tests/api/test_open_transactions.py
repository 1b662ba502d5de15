"""Transactions that stay open: one of ours delays changes of others and is named, others do not."""

from __future__ import annotations

import pytest

from federation.services.fleet import held_back
from federation.store.floors import FLOOR_BITS, JOURNAL_CLASS
from federation.v1.scheduling_pb2 import WatchBindingsRequest
from lab.control_planes import report
from lab.databases import Databases, connected
from lab.patience import until
from tests.api.calls import binding, scheduled
from tests.api.pairs import (
    Pair,
    cluster_at,
    heard,
    pair,
    readiness,
    shares_often,
    started_pair,
    until_ready,
)
from tests.api.test_following import assert_equal
from tests.api.world import HOLD_JOURNAL

__all__ = ["pair", "shares_often", "started_pair"]


@pytest.mark.parametrize("is_long", [True, False])
async def test_an_open_writer_holds_the_journal_back_and_is_named_where_it_lasts(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    monkeypatch.setattr(held_back, "LOOK_SECONDS", 0.0)
    if is_long:
        monkeypatch.setattr(held_back, "HELD_SECONDS", 0.0)
    await pair.a.enrolled("member1")
    await until_ready(pair.b, "Unknown", "AgentSilent")
    async with connected(pair.a.database_url) as writer:
        await writer.execute(f"SET application_name = 'slow'; {HOLD_JOURNAL}")
        await pair.a.ask("CordonCluster", name="member1", cordoned=True)
        for plane in pair.planes:
            await plane.follow()
        assert not (await cluster_at(pair.b)).status.cordoned
        pid = writer.get_server_pid()

        async def page() -> tuple[int, str]:
            await pair.b.follow()
            return await readiness(pair.b)

        # A transaction of a control plane may hold a lower floor for a moment.
        named = f"server process {pid}"
        status, why = await until(page, lambda page: not is_long or named in page[1])
        is_named = named in why
        assert (status, is_named) == ((503, True) if is_long else (200, False)), why
        assert not is_long or ("'slow'" in why and f"pg_terminate_backend({pid})" in why)
    await until(lambda: cluster_at(pair.b), lambda cluster: cluster.status.cordoned)
    await until(lambda: readiness(pair.b), lambda page: page[0] == 200)


@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_a_transaction_that_writes_nothing_of_ours_delays_no_control_plane(
    pair: Pair, databases: Databases, monkeypatch: pytest.MonkeyPatch, *, is_elsewhere: bool
) -> None:
    """In another database of the server, or in ours, with an id, a snapshot and rows of its own."""
    monkeypatch.setattr(held_back, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(held_back, "HELD_SECONDS", 0.0)
    url = databases.create("elsewhere") if is_elsewhere else pair.a.database_url
    # As a floor of another database, and as a lock of another program.
    key = JOURNAL_CLASS << FLOOR_BITS if is_elsewhere else 1
    async with pair.a.connected("member1", report=report(nodes=2)) as stream, connected(url) as own:
        await own.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE public.own (id int);"
            f" INSERT INTO public.own VALUES (1); SELECT pg_advisory_xact_lock_shared({key})"
        )
        decided = await scheduled(pair.a, binding("web", replicas=2))
        assert decided.decision.clusters
        await stream.say(report=report(sequence=2, nodes=3))
        await heard(stream, "ack")
        await pair.a.ask("CordonCluster", name="member1", cordoned=True)
        watched = pair.b.admin.scheduling.WatchBindings(
            WatchBindingsRequest(namespace="shop"), metadata=pair.b.admin.metadata
        )
        names = []
        while "web" not in names:
            message = await watched.read()
            names += [event.binding.metadata.name for event in message.events]
        watched.cancel()
        # Lists, estimates and decisions: of both, and the same.
        await assert_equal(*pair.planes)
        assert (await cluster_at(pair.b)).status.cordoned
        for plane in pair.planes:
            assert (await readiness(plane))[0] == 200
    if is_elsewhere:
        databases.drop(url)
