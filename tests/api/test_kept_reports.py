"""Decisions held against the reports that were kept before them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.cli.history import NOT_EQUAL
from federation.services import history
from federation.services.duties import Duties, keeping_reports
from federation.services.members.kept_reports import (
    DECIDED_SECONDS,
    KEEP_EVERY_SECONDS,
    KEPT_AT_ONCE,
)
from federation.v1.agents_pb2 import Report
from federation.v1.scheduling_pb2 import (
    BesideReports,
    ScheduleBatchItem,
)
from lab.control_planes import (
    AgentStream,
    Plane,
    refused,
    report,
    running_control_plane,
)
from lab.databases import connect, connected
from tests.api.calls import binding, scheduled
from tests.keepers import Keeper
from tests.unit.cli.calling import run

CLUSTERS = ("member1", "member2", "member3")


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(database_url: str, tmp_path: Path) -> Any:
    """Three clusters, and what keeps their reports when it is told to."""
    async with (
        running_control_plane(database_url, tmp_path, keep_reports_hours="0") as running,
        AsyncExitStack() as stack,
    ):
        streams = [
            await stack.enter_async_context(running.connected(name, report=report()))
            for name in CLUSTERS
        ]
        yield running, streams, Keeper(running.plane)


async def beside(running: Plane, decision_id: str) -> BesideReports:
    answer = await running.admin.ask("ReplayDecision", id=decision_id, from_reports=True)
    assert answer.equal, answer
    told: BesideReports = answer.beside_reports
    return told


async def say_more(stream: AgentStream, sequence: int, free: int) -> None:
    """A newer report, in which each of four nodes has so many cores left."""
    made: Report = report(sequence=sequence)
    made.pools.minimums[0] = free * 1000
    await stream.say(report=made)
    # It is asked for nodes, too, and nobody waits for its answers.
    heard = await stream.next()
    while heard is not None and heard.ack.sequence != sequence:
        heard = await stream.next()
    assert heard is not None


async def test_reports_say_what_decisions_were_made_on(fleet: Any) -> None:
    running, streams, keep = fleet
    assert await keep() == len(CLUSTERS)
    first = (await scheduled(running, binding("a", replicas=9))).decision
    second = (await scheduled(running, binding("b", replicas=5))).decision
    for made, since in ((first, 0), (second, 1)):
        told = await beside(running, made.id)
        assert (told.equal, told.clusters, told.decisions_since) == (True, 3, since), told
        assert [(each.name, each.replicas) for each in told.targets] == [
            (each.name, each.replicas) for each in made.clusters
        ]
    # A report that came after the newest that is kept: the decision knew more than is kept.
    await say_more(streams[2], 2, free=1)
    third = (await scheduled(running, binding("c", replicas=2))).decision
    told = await beside(running, third.id)
    assert (told.equal, told.clusters, told.on_other_reports) == (True, 3, 1), told
    (other,) = told.differences
    assert (other.cluster, other.decided_on_report, other.kept_report) == ("member3", 2, 1)
    assert other.decided_on < other.least
    assert list(told.targets) == list(third.clusters)
    answer = await run(running, "replay", third.id, "--from-reports")
    assert answer.exit_code == 0, answer.output
    assert "say the same" in answer.stdout
    assert "decided on a newer report" in answer.stdout
    # Kept by now: what is the same in a cluster is not written again.
    await keep()
    fourth = (await scheduled(running, binding("d", replicas=1))).decision
    assert (await beside(running, fourth.id)).equal
    answer = await run(running, "replay", fourth.id, "--from-reports")
    assert (answer.exit_code, "say the same" in answer.stdout) == (0, True), answer.output


async def test_the_very_report_that_says_something_else_is_told(
    fleet: Any, database_url: str
) -> None:
    running, streams, keep = fleet
    await keep()
    await say_more(streams[2], 2, free=1)
    before = (await scheduled(running, binding("a", replicas=12))).decision
    made = (await scheduled(running, binding("b", replicas=3))).decision
    # What the picture does not hold, and is not reckoned in either.
    connection = await connect(database_url)
    older = "UPDATE decision SET created_at = created_at - interval '1 hour' WHERE id::text = $1"
    await connection.execute(older, before.id)
    await connection.close()
    told = await beside(running, made.id)
    assert (told.equal, told.clusters, told.on_other_reports) == (False, 3, 1), told
    *others, newer = told.differences
    assert newer.cluster == "member3"
    assert {each.cluster for each in others} <= {each.name for each in before.clusters}
    for each in others:
        assert (each.decided_on_report, each.kept_report) == (1, 1)
        assert each.decided_on < each.least
    answer = await run(running, "replay", made.id, "--from-reports")
    assert answer.exit_code == NOT_EQUAL, answer.output
    assert "say something else" in answer.stdout


async def test_nothing_is_kept_by_who_does_not_know_what_was_just_decided(fleet: Any) -> None:
    running, _, _ = fleet
    await scheduled(running, binding("a", replicas=9))
    # As one that was started a moment ago: of what was promised it was told nothing.
    keep = Keeper(running.plane, DECIDED_SECONDS - 1)
    assert await keep() == 0
    made = (await scheduled(running, binding("b", replicas=3))).decision
    assert (await refused(beside(running, made.id))).reason == "REPORTS_NOT_KEPT"
    keep.ahead += DECIDED_SECONDS
    assert await keep() == len(CLUSTERS)
    keep.keeping.lost()
    assert await keep() == 0


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_was_promised_since_is_reckoned_in(fleet: Any, seed: int) -> None:
    running, streams, keep = fleet
    chance, made, sequences = random.Random(seed), [], [1] * len(streams)
    await keep()
    for step in range(40):
        name = f"b{chance.randrange(6)}"
        match chance.randrange(10):
            case 0:
                place = chance.randrange(len(streams))
                sequences[place] += 1
                await say_more(streams[place], sequences[place], free=chance.randint(1, 4))
                await keep()
            case 1:
                await keep()
            case 2:
                # It may not be there.
                with suppress(grpc.aio.AioRpcError):
                    await running.ask("DeleteBinding", namespace="shop", name=name)
            case 3:
                items = [
                    ScheduleBatchItem(binding=binding(f"{step}-{n}", replicas=chance.randint(1, 3)))
                    for n in range(3)
                ]
                answer = await running.ask("ScheduleBatch", items=items)
                made += [each.decision.id for each in answer.results]
            case _:
                wanted = binding(name, replicas=chance.randint(1, 9))
                made.append((await scheduled(running, wanted)).decision.id)
    for decision_id in dict.fromkeys(made):
        told = await beside(running, decision_id)
        assert told.equal, (seed, decision_id, told)
        assert told.clusters == len(CLUSTERS)


async def test_what_is_not_kept_is_said(
    fleet: Any, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _, keep = fleet
    made = (await scheduled(running, binding("a"))).decision
    refusal = await refused(beside(running, made.id))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.reason == "REPORTS_NOT_KEPT"
    assert "--keep-reports-hours" in refusal.message
    await keep()
    refusal = await refused(beside(running, made.id))
    assert refusal.reason == "REPORTS_NOT_KEPT", "kept after the decision"
    made = (await scheduled(running, binding("b"))).decision
    assert (await beside(running, made.id)).equal
    monkeypatch.setattr(history, "MAX_REPORTED", 10)
    refusal = await refused(beside(running, made.id))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    connection = await connect(database_url)
    await connection.execute("UPDATE report_round SET kept_at = kept_at - interval '1 hour'")
    await connection.close()
    refusal = await refused(beside(running, made.id))
    assert refusal.reason == "REPORTS_NOT_KEPT"
    refusal = await refused(beside(running, "nobody"))
    assert refusal.code is grpc.StatusCode.NOT_FOUND


async def test_equal_pictures_are_kept_once_and_old_days_are_dropped(fleet: Any) -> None:
    running, _, keep = fleet

    async def count(table: str) -> int:
        async with connected(running.plane.parts.engine.url) as connection:
            return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))

    for _ in range(3):
        await keep()
    # They have one report but for its cluster, and nothing is promised.
    assert (await count("report_round"), await count("report_picture")) == (3, 1)
    await scheduled(running, binding("a", replicas=1))
    await keep()
    # Another control plane, which has written nothing yet, and has the duty now.
    parts = running.plane.parts
    keeping = Keeper(running.plane).keeping.keep
    duties = keeping_reports(
        keeping, 3600.0, at_once=KEPT_AT_ONCE, every_seconds=KEEP_EVERY_SECONDS
    )
    await Duties(parts.store, "another", duties, parts.clock).do_round()
    assert (await count("report_round"), await count("report_picture")) == (5, 2)
    async with running.plane.parts.store.transaction() as tx:
        assert await tx.kept_reports.prune(0.0) == 0
    await age(running, "report_round", "report_picture")
    pruned: Sequence[int] = [1]
    while pruned[-1]:
        async with running.plane.parts.store.transaction() as tx:
            pruned = [*pruned, await tx.kept_reports.prune(3600.0)]
    assert (await count("report_round"), await count("report_picture")) == (0, 0)


async def age(running: Plane, *tables: str) -> None:
    """Move all rows to a day that is long over, which is dropped as a whole."""
    async with connected(running.plane.parts.engine.url) as connection:
        for table in tables:
            await connection.execute(
                f"CREATE TABLE {table}_20010101 PARTITION OF {table}"
                " FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')"
            )
            await connection.execute(f"UPDATE {table} SET day = '2001-01-01'")
