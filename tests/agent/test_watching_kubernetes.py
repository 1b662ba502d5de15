"""Following a resource through everything an API server and a network do to a follower."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from estimator.kube.client import KubeClient
from estimator.kube.decoding import ObjectDecoder
from estimator.kube.informer import (
    CAP_SECONDS,
    DEFAULT_PATIENCE,
    FAILING_SECONDS,
    PAGE_SIZE,
    STEADY_SECONDS,
    Informer,
    Patience,
)
from lab.kubeapi.documents import pod, pods
from lab.kubeapi.faults import Answer, Asked, First, Silence, bad_gateway, server_error, throttled
from lab.kubeapi.resources import PODS
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from tests.watching import PODS as ALL_PODS
from tests.watching import WAIT_SECONDS, Seen, following


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(Cluster(version=100)) as running:
        yield running


@pytest.fixture
async def seen(server: KubeApiServer, tmp_path: Path) -> AsyncIterator[Seen]:
    """The changes that a watcher tells, after it has listed no pods and its watch is open."""
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        await asyncio.to_thread(server.wait_for_watches, "pods")
        yield seen


EVENT = (
    b'{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"shop","uid":"u",'
    b'"resourceVersion":"102"},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}}\n'
)


def refuse_watch_list(server: KubeApiServer) -> None:
    """As a server does that has no WatchList."""
    server.faults.add(Answer(status=422, body=b"{}"), applies=is_watch_list)


def is_watch_list(asked: Asked) -> bool:
    return "sendInitialEvents" in asked.query


def test_many_readers_make_one_type_of_events() -> None:
    """msgspec never gives the memory of a type back: `make fuzz` came to 512 MiB of them."""
    made = set(map(id, msgspec.Struct.__subclasses__()))
    decoders = [ObjectDecoder(ALL_PODS) for _ in range(10)]
    assert len(decoders) == 10
    new = [each for each in msgspec.Struct.__subclasses__() if id(each) not in made]
    assert [each.__name__ for each in new] in ([], ["Event"])


async def test_it_lists_and_then_hears_of_changes(server: KubeApiServer, tmp_path: Path) -> None:
    server.cluster.put(pod("a", on="n1"))
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", ["a"])
        server.cluster.put(pod("b"))
        assert await seen.next() == ("put", ("b", ""))
        server.cluster.put(pod("b", on="n1"))
        assert await seen.next() == ("put", ("b", "n1"))
        server.cluster.remove(pod("a"))
        assert await seen.next() == ("remove", "a")


async def test_lists_are_streamed_where_the_server_can(
    server: KubeApiServer, tmp_path: Path
) -> None:
    for each in pods(2 * PAGE_SIZE + 1, on="n1"):
        server.cluster.put(each)
    async with following(server, tmp_path) as seen:
        kind, names = await seen.next()
        assert (kind, len(set(names))) == ("replace", 2 * PAGE_SIZE + 1)
        await asyncio.to_thread(server.wait_for_watches, "pods")
    assert [asked.verb for asked in server.requests] == ["watch", "watch"]
    streamed, watched = server.requests
    assert streamed.query["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in streamed.query
    assert watched.query["resourceVersion"] == str(server.cluster.version)


async def test_a_server_without_watch_list_is_asked_for_pages_of_one_version(
    server: KubeApiServer, tmp_path: Path
) -> None:
    refuse_watch_list(server)
    for each in pods(2 * PAGE_SIZE + 1, on="n1"):
        server.cluster.put(each)
    async with following(server, tmp_path) as seen:
        kind, names = await seen.next()
        assert (kind, len(set(names))) == ("replace", 2 * PAGE_SIZE + 1)
        await asyncio.to_thread(server.wait_for_watches, "pods")
        server.cluster.skip_versions()
        server.cluster.forget_window()
        server.end_watches()
        assert (await seen.next())[0] == "replace"
    size = str(PAGE_SIZE)
    pages = [asked.query for asked in server.requests if asked.query.get("limit") == size]
    assert ["continue" in query for query in pages] == [False, True, True] * 2
    assert all("resourceVersion" not in query for query in pages)
    assert len([asked for asked in server.requests if is_watch_list(asked)]) == 1


async def test_a_server_that_ignores_watch_list_is_asked_for_pages(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """Its watch sends what there is, and never says that this was all."""
    server.cluster.put(pod("a", on="n1"))

    def is_ended_early(asked: Asked) -> bool:
        return is_watch_list(asked) and asked.query["resourceVersionMatch"] == "NotOlderThan"

    plain = (
        b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","namespace":"shop",'
        b'"resourceVersion":"101"}}}\n'
    )
    server.faults.add(Answer(status=200, body=plain), applies=is_ended_early)
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", ["a"])
        await asyncio.to_thread(server.wait_for_watches, "pods")
    assert [asked.verb for asked in server.requests] == ["watch", "list", "watch"]


async def test_failed_pods_are_not_told_of_and_those_that_succeeded_are(
    server: KubeApiServer, tmp_path: Path
) -> None:
    server.cluster.put(pod("a", on="n1"))
    server.cluster.put(pod("b", on="n1", phase="Succeeded"))
    server.cluster.put(pod("c", on="n1", phase="Failed"))
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", ["a", "b"])
        server.cluster.put(pod("a", on="n1", phase="Failed"))
        assert await seen.next() == ("remove", "a")


async def test_bookmarks_are_where_it_goes_on_from_and_no_pods(
    server: KubeApiServer, seen: Seen
) -> None:
    server.cluster.skip_versions(50)
    server.cluster.read_consistently(PODS)
    server.send_bookmarks()
    server.end_watches()
    await asyncio.to_thread(
        server.wait_for_request, lambda sent: sent.query.get("resourceVersion") == "150"
    )
    server.cluster.put(pod("a", on="n1"))
    assert await seen.next() == ("put", ("a", "n1"))


async def test_an_ended_watch_is_taken_up_where_it_ended(server: KubeApiServer, seen: Seen) -> None:
    server.cluster.put(pod("a", on="n1"))
    assert await seen.next() == ("put", ("a", "n1"))
    server.end_watches()
    server.cluster.put(pod("b", on="n1"))
    assert await seen.next() == ("put", ("b", "n1"))


async def test_a_version_that_is_too_old_is_listed_anew(server: KubeApiServer, seen: Seen) -> None:
    server.cluster.put(pod("a", on="n1"))
    assert await seen.next() == ("put", ("a", "n1"))
    server.cluster.skip_versions()
    server.cluster.forget_window()
    server.end_watches()
    assert await seen.next() == ("replace", ["a"])


async def test_a_listing_that_expires_is_started_over(
    server: KubeApiServer, tmp_path: Path
) -> None:
    refuse_watch_list(server)
    for each in pods(PAGE_SIZE + 1, on="n1"):
        server.cluster.put(each)

    def expire() -> None:
        server.cluster.skip_versions()
        server.cluster.compact()

    server.faults.add(bad_gateway(), times=1, verb="list")
    server.faults.add(
        First(act=expire), times=1, verb="list", applies=lambda asked: "continue" in asked.query
    )
    async with following(server, tmp_path) as seen:
        kind, names = await seen.next()
        assert (kind, len(names)) == ("replace", PAGE_SIZE + 1)
    pages = [asked.query for asked in server.requests if asked.verb == "list"]
    assert ["continue" in query for query in pages] == [False, False, True, False, True]


@pytest.mark.parametrize("status", [410, 504])
async def test_gone_as_a_status_and_as_an_event_mean_the_same(
    server: KubeApiServer, seen: Seen, status: int
) -> None:
    error = f'{{"type":"ERROR","object":{{"kind":"Status","code":{status}}}}}\n'
    server.say(error.encode())
    assert await seen.next() == ("replace", [])


async def test_gone_in_place_of_a_watch_is_listing_anew(server: KubeApiServer, seen: Seen) -> None:
    server.faults.add(Answer(status=410, body=b"{}"), verb="watch", times=1)
    server.end_watches()
    assert await seen.next() == ("replace", [])


async def test_events_cut_anywhere_are_put_together(server: KubeApiServer, seen: Seen) -> None:
    server.fragment_bytes = 7
    server.cluster.put(pod("a", on="n1"))
    assert await seen.next() == ("put", ("a", "n1"))
    server.say(2 * EVENT)
    for _ in range(2):
        assert await seen.next() == ("put", ("b", "n1"))


async def test_a_line_that_is_cut_off_is_dropped_and_heard_again(
    server: KubeApiServer, seen: Seen
) -> None:
    server.say(EVENT[: len(EVENT) // 2])
    server.end_watches()
    server.cluster.put(pod("a", on="n1"))
    assert await seen.next() == ("put", ("a", "n1"))


async def test_an_error_of_the_server_is_tried_again(server: KubeApiServer, tmp_path: Path) -> None:
    server.faults.add(server_error(), times=2)
    async with following(server, tmp_path) as seen:
        assert await seen.next(contact=True) == ("contact", "lost")
        assert await seen.next() == ("replace", [])


async def test_rotated_credentials_are_read_again(
    server: KubeApiServer, seen: Seen, tmp_path: Path
) -> None:
    server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
    server.end_watches()
    await seen.until_lost()
    server.kubeconfig(tmp_path / "kubeconfig", "second")
    server.cluster.put(pod("a", on="n1"))
    assert await seen.next() == ("put", ("a", "n1"))


async def test_it_waits_as_long_as_it_is_told_to(server: KubeApiServer, tmp_path: Path) -> None:
    server.faults.add(throttled(1), times=1)
    async with following(server, tmp_path) as seen:
        assert await seen.next(contact=True) == ("contact", "lost")
        assert await seen.next() == ("replace", [])
    refused, answered = server.requests[:2]
    assert answered.at_seconds - refused.at_seconds >= 1.0


async def test_a_pod_that_no_server_stores_harms_no_other(
    server: KubeApiServer, tmp_path: Path
) -> None:
    server.cluster.put(pod("a", on="n1", cpu="lots"))
    server.cluster.put(pod("b", on="n1"))
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", ["b"])
        server.cluster.put(pod("c", on="n1", cpu="lots"))
        server.cluster.put({**pod("d"), "spec": {"containers": "none"}})
        server.cluster.put(pod("e", on="n1"))
        assert await seen.next() == ("put", ("e", "n1"))


async def test_a_watch_of_another_history_is_not_believed(
    server: KubeApiServer, tmp_path: Path
) -> None:
    server.cluster.put(pod("a", on="n1"))
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", ["a"])
        await asyncio.to_thread(server.wait_for_watches, "pods")
        server.cluster.version = 5
        server.end_watches()
        assert await seen.next() == ("replace", ["a"])


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
    server: KubeApiServer, seen: Seen, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for version in (101, 102):
        server.say(event("MODIFIED", wrong, version))
    server.say(event("ADDED", pod("c", on="n1"), 103))
    told = [await seen.next(skip=True) for _ in range(2)]
    assert sorted(told) == [("put", ("c", "n1")), ("skip", 1)]
    assert not seen.losses
    assert caplog.text.count("skipping one of the pods") == 1


async def test_an_object_that_can_be_read_again_is_not_skipped_any_more(
    server: KubeApiServer, seen: Seen
) -> None:
    server.say(event("ADDED", pod("b", on="n\xff"), 101))
    assert await seen.next(skip=True) == ("skip", 1)
    server.say(event("MODIFIED", pod("b"), 102))
    assert await seen.next(skip=True) == ("put", ("b", ""))
    assert await seen.next(skip=True) == ("skip", 0)


async def test_an_unreadable_object_that_goes_away_is_found_out_by_a_list(
    server: KubeApiServer, seen: Seen
) -> None:
    server.say(event("DELETED", pod("b", on="n\xff"), 101))
    assert await seen.next() == ("replace", [])


async def test_a_line_that_is_no_event_is_not_asked_for_for_ever(
    server: KubeApiServer, seen: Seen
) -> None:
    server.say(b'{"type": 7}\n')
    assert await seen.next() == ("replace", [])
    ((loss, forbidden),) = seen.losses
    assert "not the API server's JSON" in loss.why
    assert not forbidden


@pytest.mark.expected_errors("watching pods failed", "watching pods ended")
async def test_an_unforeseen_error_is_a_loss_and_a_new_beginning(
    server: KubeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        await asyncio.to_thread(server.wait_for_watches, "pods")
        seen.failures = [KeyError("unforeseen"), TypeError("nor this")]
        server.cluster.put(pod("a", on="n1"))
        server.cluster.skip_versions()
        server.cluster.forget_window()
        server.end_watches()
        while await seen.next() != ("replace", ["a"]):
            pass
        causes = [loss.why for loss, _ in seen.losses]
    for error in ("TypeError", "KeyError"):
        assert any(f"the watcher failed: {error}" in cause for cause in causes)
    assert caplog.text.count("watching pods failed") == 2


@pytest.mark.expected_errors("watching pods failed", "watching pods ended")
async def test_an_informer_that_ends_again_and_again_is_failing(
    server: KubeApiServer, tmp_path: Path
) -> None:
    seen = Seen()
    seen.failures = [OSError("no more memory")] * 1_000_000
    loop = asyncio.get_running_loop()
    async with KubeClient(server.kubeconfig(tmp_path / "kubeconfig")) as client:
        informer = Informer(client, ALL_PODS, seen.receiver, lambda _ceiling: 0.0)
        assert not informer.is_failing_at(loop.time() + 2 * FAILING_SECONDS)
        running = asyncio.create_task(informer.run())
        for _ in range(3):
            await seen.until_lost()
        # In vain for long, but not yet for long enough.
        assert not informer.is_failing_at(loop.time())
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr("estimator.kube.informer.FAILING_SECONDS", 0.0)
            assert informer.is_failing_at(loop.time())
            # A run that lasts is not failing any more.
            assert not informer.is_failing_at(loop.time() + 2 * STEADY_SECONDS)
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
        await asyncio.to_thread(server.wait_for_watches, "pods")
        ceilings.clear()
        server.faults.add(bad_gateway(), times=6)
        server.faults.add(Answer(status=403, body=b"{}"), times=1)
        server.end_watches()
        while len(seen.losses) < 7:
            await seen.until_lost()
    assert ceilings[:7] == [1.0, 2.0, 4.0, 8.0, CAP_SECONDS, CAP_SECONDS, 1.0]
    assert [forbidden for _, forbidden in seen.losses] == [False] * 6 + [True]


async def test_a_watch_that_opens_does_not_show_that_the_server_lives(
    server: KubeApiServer, seen: Seen
) -> None:
    """Once lost, the server is believed when it answers: a watch may stay silent for ever."""
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
