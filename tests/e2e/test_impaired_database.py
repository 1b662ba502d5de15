"""A database that answers and is of no use to a running control plane, and is put right again."""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import grpc
import pytest
from asyncpg.exceptions import DeadlockDetectedError

from federation.services.fleet import journal_reader as following
from federation.services.members import presences
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.control_planes import (
    RunningControlPlane,
    heartbeat,
    refusal_of,
    refused,
    report,
    running_control_plane,
)
from lab.databases import Databases, connect
from lab.patience import until
from tests.e2e.test_server_outage import scheduled, unless_unavailable

FAIL = """
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER fail BEFORE INSERT ON journal EXECUTE FUNCTION fail();
"""


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def readiness(running: RunningControlPlane) -> tuple[int, str]:
    return await asyncio.to_thread(page, f"http://{running.plane.web_endpoint}/readyz")


async def unavailability(running: RunningControlPlane) -> str:
    """What a call is told that nothing can be done for now, "" when something is done."""
    try:
        await scheduled(running)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return refusal_of(error).message
    return ""


def is_answer(answer: object) -> bool:
    return answer is not None


async def execute(url: str, statement: str) -> None:
    """Again where it and a transaction of the control plane wait for each other's tables."""
    connection = await connect(url)
    while True:
        try:
            await connection.execute(statement)
            break
        except DeadlockDetectedError:
            continue
    await connection.close()


@pytest.mark.expected_errors("the database cannot be used")
async def test_a_full_disk_is_told_everywhere_and_once_in_the_log(
    fresh_database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "federation")
    async with (
        running_control_plane(fresh_database_url, tmp_path) as running,
        running.connected("member1", report=report(sequence=1)),
    ):
        await execute(fresh_database_url, FAIL)
        for _ in range(3):
            refusal = await refused(scheduled(running))
            assert refusal.code is grpc.StatusCode.UNAVAILABLE
            assert "The disk of the database is full" in refusal.message
        status, why = await readiness(running)
        assert status == 503
        assert "The disk of the database is full" in why
        listed = await running.admin.ask("ListClusters")
        assert [each.metadata.name for each in listed.clusters] == ["member1"]
        await execute(fresh_database_url, "DROP TRIGGER fail ON journal")
        assert (await readiness(running))[0] == 200
        answer = await scheduled(running)
        assert answer.decision.outcome == OUTCOME_SCHEDULED
    assert caplog.messages.count("the database cannot be used") == 1
    assert caplog.messages.count("the database can be used again") == 1


@pytest.mark.expected_errors("the database cannot be used", "the database went back")
@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("DROP SCHEMA fedsched CASCADE", "run `federation migrate`, or restore it"),
        (
            "TRUNCATE database_incarnation, cluster, binding, credential, journal CASCADE",
            "restore it",
        ),
    ],
)
async def test_an_emptied_database_is_told_until_it_is_restored(
    databases: Databases,
    fresh_database_url: str,
    tmp_path: Path,
    statement: str,
    advice: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(presences, "MAX_ROUND_SECONDS", 0.05)
    async with (
        running_control_plane(fresh_database_url, tmp_path) as running,
        running.connected("member1", report=report(sequence=1)) as stream,
    ):
        copy = databases.copy(f"kept_{id(running)}", fresh_database_url)
        tried = partial(unless_unavailable, running)
        ready = partial(readiness, running)
        await until(tried, is_answer)
        await execute(fresh_database_url, statement)
        _, told = await until(ready, lambda page: page[0] != 200)
        assert advice in told
        # It is looked at every second whether a table that is there was emptied.
        await until(partial(unavailability, running), lambda message: advice in message)
        databases.put_back(fresh_database_url, copy)
        await until(ready, lambda page: page[0] == 200)
        # Nothing is promised before the agent has reported anew.
        answer = await until(tried, is_answer)
        assert answer is not None
        assert answer.decision.outcome != OUTCOME_SCHEDULED
        # It was asked to place what is lost, and then for a report.
        while (message := await stream.next()) is not None:
            if message.WhichOneof("message") == "resync":
                break
        await stream.say(heartbeat=heartbeat(1, "what was reported before"))
        await stream.say(report=report(sequence=2))
        while (message := await stream.next()) is not None:
            if message.WhichOneof("message") == "ack":
                break
        answer = await until(tried, is_answer)
        assert answer is not None
        assert answer.decision.outcome == OUTCOME_SCHEDULED
    unexpected = [each for each in caplog.records if each.exc_info]
    assert unexpected == []
