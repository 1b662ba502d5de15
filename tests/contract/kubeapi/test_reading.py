"""What an agent relies on when it lists and watches, of the fake as of a real API server."""

from __future__ import annotations

import itertools
import time

import pytest

from lab.kubeapi.api import Api, binding, pod

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

FUTURE = "9999999999"
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
WATCH_LIST = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def create(api: Api, *names: str, node: str = "") -> str:
    """Pods with these names; the version after the last."""
    version = ""
    for name in names:
        made = api.post(api.pods, pod(name, node=node, app="web"))
        assert made.status == 201
        version = made.version
    return version


def test_pages_stay_at_the_first_ones_version(api: Api) -> None:
    create(api, "a", "b", "c", "d", "e")
    first = api.get(api.pods, limit="2")
    assert first.names == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    api.delete(f"{api.pods}/d")
    create(api, "f")
    second = api.get(api.pods, limit="2", continue_=first.body["metadata"]["continue"])
    assert (second.names, second.version) == (["c", "d"], first.version)
    last = api.get(api.pods, limit="2", continue_=second.body["metadata"]["continue"])
    assert (last.names, last.version) == (["e"], first.version)
    assert last.body["metadata"].keys() == {"resourceVersion"}
    assert api.get(api.pods).names == ["a", "b", "c", "e", "f"]


def test_items_carry_no_kind_and_objects_do(api: Api) -> None:
    create(api, "a")
    listed = api.get(api.pods)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("PodList", "v1")
    assert listed.body["items"][0].keys().isdisjoint({"kind", "apiVersion"})
    assert api.get(f"{api.pods}/a").body["kind"] == "Pod"


def test_version_0_knows_no_pages(api: Api) -> None:
    version = create(api, "a", "b", "c")
    # It may be behind: waiting for a version makes it catch up.
    api.get(api.pods, resourceVersion=version, resourceVersionMatch="NotOlderThan")
    listed = api.get(api.pods, resourceVersion="0", limit="1")
    assert listed.names == ["a", "b", "c"]
    assert "continue" not in listed.body["metadata"]


def test_how_many_remain_is_not_told_under_a_selector(api: Api) -> None:
    create(api, "a", "b", "c")
    listed = api.get(api.pods, limit="1", labelSelector="app in (web),!canary")
    assert listed.names == ["a"]
    assert "continue" in listed.body["metadata"]
    assert "remainingItemCount" not in listed.body["metadata"]


def test_an_exact_version_is_served_as_it_was(api: Api) -> None:
    version = create(api, "a", "b")
    create(api, "c")
    exact = api.get(api.pods, resourceVersion=version, resourceVersionMatch="Exact")
    assert (exact.names, exact.version) == (["a", "b"], version)


def test_a_version_that_is_to_come_is_not_waited_for_for_ever(api: Api) -> None:
    answer = api.get(api.pods, resourceVersion=FUTURE)
    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": "many"}, 400),
        ({"limit": "2", "continue_": "garbage"}, 400),
        ({"fieldSelector": "spec.priority=1"}, 400),
        ({"fieldSelector": "spec.nodeName"}, 400),
        ({"labelSelector": "app in (web"}, 400),
        ({"sendInitialEvents": "true"}, 422),
        ({"watch": "1", "sendInitialEvents": "true"}, 422),
        ({"watch": "1", "resourceVersion": "abc"}, 500),
    ],
)
def test_queries_that_are_refused(api: Api, query: dict[str, str], status: int) -> None:
    answer = api.get(api.pods, **query)
    assert answer.status == answer.body["code"] == status
    assert answer.body["kind"] == "Status"


def test_field_selectors_tell_bound_from_unbound(api: Api) -> None:
    create(api, "bound", node="n1")
    create(api, "free")
    live = "status.phase!=Succeeded,status.phase!=Failed"
    assert api.get(api.pods, fieldSelector=f"spec.nodeName!=,{live}").names == ["bound"]
    assert api.get(api.pods, fieldSelector=f"spec.nodeName=,{live}").names == ["free"]
    api.patch(f"{api.pods}/bound/status", {"status": {"phase": "Succeeded"}})
    assert api.get(api.pods, fieldSelector=f"spec.nodeName!=,{live}").names == []


def test_metadata_alone(api: Api) -> None:
    create(api, "a")
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    listed = api.get(api.pods, accept=accept)
    assert listed.body["kind"] == "PartialObjectMetadataList"
    (item,) = listed.body["items"]
    assert item.keys() == {"kind", "apiVersion", "metadata"}
    one = api.get(
        f"{api.pods}/a", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )
    assert (one.body["kind"], one.body["metadata"]["name"]) == ("PartialObjectMetadata", "a")


def test_a_watch_tells_what_came_after_its_version(api: Api) -> None:
    version = create(api, "before")
    create(api, "a", node="n1")
    api.patch(f"{api.pods}/a", {"metadata": {"labels": {"app": "api"}}})
    api.delete(f"{api.pods}/a")
    events = api.events(api.pods, 4, resourceVersion=version)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {event["object"]["metadata"]["name"] for event in events} == {"a"}
    assert {event["object"]["kind"] for event in events} == {"Pod"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)
    dying = [event["object"]["metadata"].get("deletionGracePeriodSeconds") for event in events]
    assert dying == [None, None, 0, 0]


def test_a_deletion_with_grace_leaves_the_pod_until_its_kubelet_is_done(api: Api) -> None:
    made = api.post(api.pods, pod("a", node="n1", grace_seconds=30))
    api.delete(f"{api.pods}/a")
    assert api.get(f"{api.pods}/a").body["metadata"]["deletionGracePeriodSeconds"] == 30
    api.delete(f"{api.pods}/a", {"gracePeriodSeconds": 0})
    events = api.events(api.pods, 3, resourceVersion=made.version)
    assert [
        (event["type"], event["object"]["metadata"]["deletionGracePeriodSeconds"])
        for event in events
    ] == [("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", 0)]


def test_what_leaves_the_selection_is_deleted_and_what_enters_added(api: Api) -> None:
    version = create(api, "a")
    api.post(f"{api.pods}/a/binding", binding("a", "n1"))
    running = api.patch(f"{api.pods}/a/status", {"status": {"phase": "Running"}})
    ended = api.patch(f"{api.pods}/a/status", {"status": {"phase": "Succeeded"}})
    selection = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    added, modified, deleted = api.events(
        api.pods, 3, resourceVersion=version, fieldSelector=selection
    )
    assert [added["type"], modified["type"], deleted["type"]] == ["ADDED", "MODIFIED", "DELETED"]
    assert modified["object"]["metadata"]["resourceVersion"] == running.version
    # As it was while it matched, at the version of the change.
    assert deleted["object"]["status"]["phase"] == "Running"
    assert deleted["object"]["metadata"]["resourceVersion"] == ended.version


def test_a_watch_ends_by_its_timeout_without_a_word(api: Api) -> None:
    version = api.get(api.pods).version
    begun = time.monotonic()
    assert list(api.watch(api.pods, seconds=1, resourceVersion=version)) == []
    assert time.monotonic() - begun >= 0.9


def test_a_watch_of_a_version_that_is_to_come_stays_silent(api: Api) -> None:
    create(api, "a")
    assert list(api.watch(api.pods, seconds=1, resourceVersion=FUTURE)) == []


def test_a_bookmark_comes_before_the_end_and_is_no_object(api: Api) -> None:
    version = create(api, "a")
    create(api, "b")
    watch = api.watch(api.pods, seconds=4, resourceVersion=version, allowWatchBookmarks="true")
    assert next(watch)["type"] == "ADDED"
    newest = create(api, "c")
    *events, bookmark = watch
    assert [event["type"] for event in events] == ["ADDED"]
    assert bookmark["type"] == "BOOKMARK"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(newest)
    assert bookmark["object"]["spec"] == {"containers": None}
    assert "name" not in bookmark["object"]["metadata"]


def test_a_watch_that_only_catches_up_gets_no_bookmark(api: Api) -> None:
    version = create(api, "a")
    create(api, "b")
    events = api.watch(api.pods, seconds=3, resourceVersion=version, allowWatchBookmarks="true")
    assert [event["type"] for event in events] == ["ADDED"]


def test_a_version_of_long_ago_is_an_error_inside_the_stream(api: Api) -> None:
    (event,) = api.watch(api.pods, seconds=5, resourceVersion="1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_a_streamed_list_says_where_it_ends(api: Api) -> None:
    create(api, "a", "b")
    first, second, end = api.events(api.pods, 3, **WATCH_LIST)
    assert [first["type"], second["type"], end["type"]] == ["ADDED", "ADDED", "BOOKMARK"]
    assert end["object"]["metadata"]["annotations"] == INITIAL_EVENTS_END
    version = end["object"]["metadata"]["resourceVersion"]
    create(api, "c")
    (event,) = api.events(api.pods, 1, resourceVersion=version)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "c")


def test_a_streamed_list_of_nothing_ends_at_once(api: Api) -> None:
    (end,) = api.events(api.pods, 1, **WATCH_LIST)
    assert end["object"]["metadata"]["annotations"] == INITIAL_EVENTS_END


def test_a_streamed_list_without_bookmarks_never_says_that_it_ended(api: Api) -> None:
    create(api, "a")
    query = {key: value for key, value in WATCH_LIST.items() if key != "allowWatchBookmarks"}
    events = list(api.watch(api.pods, seconds=1, **query))
    assert [event["type"] for event in events] == ["ADDED"]


def test_live_events_follow_a_streamed_list(api: Api) -> None:
    create(api, "a")
    watch = api.watch(api.pods, seconds=20, **WATCH_LIST)
    assert [event["type"] for event in itertools.islice(watch, 2)] == ["ADDED", "BOOKMARK"]
    create(api, "b")
    event = next(watch)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")
    watch.close()
