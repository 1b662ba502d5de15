"""Following a resource through everything an API server and a network do to a follower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from estimator.kube.objects import RawPod
from estimator.kube.reading import DEFAULT_PATIENCE, PAGE_SIZE, ResourceReader, Watched
from estimator.kube.translate import pod_from_raw
from lab.kubeapi.documents import pod, pods
from lab.kubeapi.faults import (
    Answer,
    Asked,
    First,
    bad_gateway,
    server_error,
    throttled,
)
from lab.kubeapi.resources import PODS
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from tests.watching import following

EVENT = (
    b'{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"shop","uid":"u",'
    b'"resourceVersion":"102"},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}}\n'
)


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(Cluster(version=100)) as running:
        yield running


def refuse_watch_list(server: KubeApiServer) -> None:
    """As a server does that has no WatchList."""
    server.faults.add(Answer(status=422, body=b"{}"), applies=is_watch_list)


def is_watch_list(asked: Asked) -> bool:
    return "sendInitialEvents" in asked.query


def test_many_readers_make_one_type_of_events() -> None:
    """msgspec never gives the memory of a type back: `make fuzz` came to 512 MiB of them."""
    watched = Watched(name="Pods", method=lambda: print, raw=RawPod, translate=pod_from_raw)
    made = set(map(id, msgspec.Struct.__subclasses__()))
    readers = [ResourceReader(watched, DEFAULT_PATIENCE, lambda _: 0.0) for _ in range(10)]
    assert len(readers) == 10
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
        server.wait_for_watches("pods")
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
        server.wait_for_watches("pods")
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
        server.wait_for_watches("pods")
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
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.cluster.skip_versions(50)
        server.cluster.read_consistently(PODS)
        server.send_bookmarks()
        server.end_watches()
        server.wait_for_request(lambda asked: asked.query.get("resourceVersion") == "150")
        server.cluster.put(pod("a", on="n1"))
        assert await seen.next() == ("put", ("a", "n1"))


async def test_an_ended_watch_is_taken_up_where_it_ended(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.cluster.put(pod("a", on="n1"))
        assert await seen.next() == ("put", ("a", "n1"))
        server.end_watches()
        server.cluster.put(pod("b", on="n1"))
        assert await seen.next() == ("put", ("b", "n1"))


async def test_a_version_that_is_too_old_is_listed_anew(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
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
    server: KubeApiServer, tmp_path: Path, status: int
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        error = f'{{"type":"ERROR","object":{{"kind":"Status","code":{status}}}}}\n'
        server.say(error.encode())
        assert await seen.next() == ("replace", [])


async def test_events_cut_anywhere_are_put_together(server: KubeApiServer, tmp_path: Path) -> None:
    server.fragment_bytes = 7
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.cluster.put(pod("a", on="n1"))
        assert await seen.next() == ("put", ("a", "n1"))
        server.say(2 * EVENT)
        for _ in range(2):
            assert await seen.next() == ("put", ("b", "n1"))


async def test_a_line_that_is_cut_off_is_dropped_and_heard_again(
    server: KubeApiServer, tmp_path: Path
) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
        server.say(EVENT[: len(EVENT) // 2])
        server.end_watches()
        server.cluster.put(pod("a", on="n1"))
        assert await seen.next() == ("put", ("a", "n1"))


async def test_an_error_of_the_server_is_tried_again(server: KubeApiServer, tmp_path: Path) -> None:
    server.faults.add(server_error(), times=2)
    async with following(server, tmp_path) as seen:
        assert await seen.next(contact=True) == ("contact", "lost")
        assert await seen.next() == ("replace", [])


async def test_rotated_credentials_are_read_again(server: KubeApiServer, tmp_path: Path) -> None:
    async with following(server, tmp_path) as seen:
        assert await seen.next() == ("replace", [])
        server.wait_for_watches("pods")
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
        server.wait_for_watches("pods")
        server.cluster.version = 5
        server.end_watches()
        assert await seen.next() == ("replace", ["a"])
