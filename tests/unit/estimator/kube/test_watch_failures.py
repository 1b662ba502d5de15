"""Objects that cannot be read, watchers that fail, and how long they wait before they try again."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from estimator.kube.access import connect, lister
from estimator.kube.loop import STEADY_SECONDS, WatcherThreads
from estimator.kube.objects import RawPod
from estimator.kube.reading import DEFAULT_PATIENCE, Patience, Watched
from estimator.kube.translate import pod_from_raw
from estimator.kube.watch import CAP_SECONDS, Watcher
from lab.kubeapi.documents import pod
from lab.kubeapi.faults import Answer, Silence, bad_gateway
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from tests.watching import WAIT_SECONDS, Seen, following


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(Cluster(version=100)) as running:
        yield running


def event(kind: str, document: Any, version: int) -> bytes:
    """A line of a watch; what the text holds beyond Latin-1 is not needed here."""
    metadata = {**document["metadata"], "resourceVersion": str(version)}
    line = {"type": kind, "object": {**document, "metadata": metadata}}
    return json.dumps(line, ensure_ascii=False).encode("latin-1") + b"\n"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(pod("b", on="n\xff"), id="bytes that are no UTF-8"),
        pytest.param({**pod("b"), "spec": {"containers": 7}}, id="another type"),
        pytest.param({**pod("b"), "metadata": {"name": "", "uid": "u"}}, id="no name"),
        pytest.param({**pod("b"), "metadata": {"namespace": None}}, id="nothing but a version"),
        pytest.param({**pod("b"), "metadata": {"name": ["b"]}}, id="a name that is none"),
        pytest.param(pod("b", cpu="\xff"), id="a quantity that is none"),
    ],
)
async def test_one_bad_object_is_skipped_and_told_once_and_the_rest_goes_on(
    server: KubeApiServer, tmp_path: Path, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        for version in (101, 102):
            server.say(event("MODIFIED", wrong, version))
        server.say(event("ADDED", pod("c", on="n1"), 103))
        told = [await seen.next(skip=True) for _ in range(2)]
        assert sorted(told) == [("put", ("c", "n1")), ("skip", 1)]
        assert not seen.losses
    assert caplog.text.count("skipping one of the pods") == 1


async def test_an_object_that_can_be_read_again_is_not_skipped_any_more(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.say(event("ADDED", pod("b", on="n\xff"), 101))
        assert await seen.next(skip=True) == ("skip", 1)
        server.say(event("MODIFIED", pod("b"), 102))
        assert await seen.next(skip=True) == ("put", ("b", ""))
        assert await seen.next(skip=True) == ("skip", 0)


async def test_an_unreadable_object_that_goes_away_is_found_out_by_a_list(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.say(event("DELETED", pod("b", on="n\xff"), 101))
        assert await seen.next() == ("replace", [])


async def test_a_line_that_is_no_event_is_not_asked_for_for_ever(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.say(b'{"type": 7}\n')
        assert await seen.next() == ("replace", [])
        ((loss, forbidden),) = seen.losses
        assert "not the API server's JSON" in loss.why
        assert not forbidden


async def test_what_nobody_foresaw_is_told_and_begun_anew(
    server: KubeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The watcher's thread ends by an error that is no trouble of the API server's."""
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    failures = [KeyError("unforeseen"), TypeError("nor this")]

    def method() -> Any:
        if failures and server.requests:
            raise failures.pop()
        return lister(connect(kubeconfig), "/api/v1/pods")

    seen = Seen()
    watched = Watched(name="pods", method=method, raw=RawPod, translate=pod_from_raw)
    watcher = Watcher(watched, seen, lambda _ceiling: 0.0)
    threads = WatcherThreads([watcher], lambda _ceiling: 0.0)
    running = asyncio.create_task(threads.run())
    try:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
        server.end_watches()
        # The next credentials are read in vain, twice.
        for error in ("TypeError", "KeyError"):
            while not (seen.losses and f"the watcher failed: {error}" in seen.losses[-1][0].why):
                await seen.until_lost()
        server.kubeconfig(kubeconfig, "second")
        server.cluster.put(pod("a", on="n1"))
        assert (await seen.next())[0] == "replace"
        assert not threads.are_failing_at(asyncio.get_running_loop().time())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert caplog.text.count("watching pods failed") == 2


class Failing:
    """A watcher whose thread ends at once, ever again."""

    name = "nodes"

    def __init__(self) -> None:
        self.runs = 0
        self.has_run_often = threading.Event()

    def run(self) -> None:
        self.runs += 1
        if self.runs == 3:
            self.has_run_often.set()
        raise OSError("no more threads")

    def stop(self) -> None:
        """It has."""


async def test_a_thread_that_ends_again_and_again_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Failing()
    threads = WatcherThreads([watcher], lambda _ceiling: 0.0)
    running = asyncio.create_task(threads.run())
    loop = asyncio.get_running_loop()
    try:
        assert await asyncio.to_thread(watcher.has_run_often.wait, WAIT_SECONDS)
        assert not threads.are_failing_at(loop.time())
        monkeypatch.setattr("estimator.kube.loop.FAILING_SECONDS", 0.0)
        assert threads.are_failing_at(loop.time())
        # A thread that lasts is not failing any more.
        assert not threads.are_failing_at(loop.time() + 2 * STEADY_SECONDS)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_back_off_starts_anew_when_the_server_answers_again(
    server: KubeApiServer, tmp_path: Path
) -> None:
    ceilings: list[float] = []

    def uniform(ceiling: float) -> float:
        if ceiling != DEFAULT_PATIENCE.watch_shift:
            ceilings.append(ceiling)
        return 0.0

    async with following(server, tmp_path, uniform) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        ceilings.clear()
        server.faults.add(bad_gateway(), times=6)
        server.faults.add(Answer(status=403, body=b"{}"), times=1)
        server.end_watches()
        while len(seen.losses) < 7:
            await seen.until_lost()
    assert ceilings[:7] == [1.0, 2.0, 4.0, 8.0, CAP_SECONDS, CAP_SECONDS, 1.0]
    assert [forbidden for _, forbidden in seen.losses] == [False] * 6 + [True]


async def test_a_watch_that_opens_does_not_show_that_the_server_lives(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """Once lost, the server is believed when it answers: a watch may stay silent for ever."""
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.faults.add(bad_gateway(), verb="watch", times=1)
        server.faults.add(bad_gateway(), verb="list", times=3)
        server.end_watches()
        await seen.until_lost()
        while await seen.next(contact=True) != ("contact", "made"):
            pass
    assert len(seen.losses) == 4


async def test_a_server_that_says_no_more_is_lost_as_soon_as_a_watch_would_end(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """After a quiet watch one object is asked for: nobody waits for it as long as for a list."""
    patience = Patience(list_read=100 * WAIT_SECONDS, watch=1.0, watch_shift=0.0)
    async with following(server, tmp_path, patience=patience) as seen:
        assert await seen.next() == ("replace", [])
        server.faults.add(Silence(), verb="list")
        await seen.until_lost()
        server.faults.clear()
        server.stop()
        server.start()
        while await seen.next(contact=True) != ("contact", "made"):
            pass
