"""Lists of one kind: documents, names, paths, order, selection, and what changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli import kinds
from federation.cli.__main__ import fedctl
from federation.cli.clusters import CLUSTERS
from federation.cli.connection import Connection
from federation.cli.kinds import changes_of
from federation.model.errors import Unavailable
from federation.v1 import clusters_pb2, resource_pb2
from tests.unit.cli.canned import answer_with, of


def cluster(name: str, cpu: str, region: str = "", **labels: str) -> resource_pb2.Cluster:
    summary = resource_pb2.ResourceSummary(
        allocatable={"cpu": cpu, "memory": "64Gi", "pods": "110"},
        allocated={"cpu": "1", "memory": "4Gi", "pods": "11"},
    )
    promise = resource_pb2.OutstandingPromise(
        binding="shop/web",
        replicas=3,
        credited=1,
        requirements=resource_pb2.ReplicaRequirements(resource_request={"cpu": "500m"}),
    )
    packable = resource_pb2.PackableCapacity(promises=[promise])
    status = resource_pb2.ClusterStatus(resource_summary=summary, packable=packable)
    status.agent.connected = region == "eu"
    return resource_pb2.Cluster(
        metadata=resource_pb2.ObjectMeta(name=name, labels=labels),
        spec=resource_pb2.ClusterSpec(region=region),
        status=status,
    )


MEMBERS = [
    cluster("a", "8", "eu", tier="gold", note="one,two\\", **{"fedsched.io/ring": "1"}),
    cluster("b", "100", "us", tier="silver"),
    cluster("c", "20", "eu"),
]


def binding(name: str, replicas: int, placed: int) -> resource_pb2.ResourceBinding:
    spec = resource_pb2.ResourceBindingSpec(
        replicas=replicas,
        replica_requirements=resource_pb2.ReplicaRequirements(
            resource_request={"cpu": "250m", "memory": "1Gi"}
        ),
        clusters=[resource_pb2.TargetCluster(name="a", replicas=placed)],
    )
    names = resource_pb2.ObjectMeta(namespace="shop", name=name, uid=f"{name}-uid")
    return resource_pb2.ResourceBinding(metadata=names, spec=spec)


class Answers:
    """A client that knows its answers."""

    async def list_clusters(self, *, include_packable: bool = False) -> Any:
        return MEMBERS

    async def get_cluster(self, name: str) -> Any:
        return next(each for each in MEMBERS if each.metadata.name == name)

    async def list_bindings(self, namespace: str = "") -> Any:
        return [binding("web", 4, 4), binding("api", 4, 1)]


@pytest.fixture(autouse=True)
def _answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "call", lambda _, method: asyncio.run(method(Answers())))


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(fedctl, [*arguments])


def names(*arguments: str) -> list[str]:
    result = asked(*arguments, "-o", "name")
    assert result.exit_code == 0, result.output
    return [line.partition("/")[2] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("name", "abc"),
        ("-name", "cba"),
        ("cpu-free", "acb"),
        ("-cpu-free", "bca"),
        ("CPU-FREE", "acb"),
        (".spec.region", "acb"),
        ("{.metadata.name}", "abc"),
        (".metadata.labels.tier", "abc"),
        ("-.metadata.labels.tier", "bac"),
    ],
)
def test_order(by: str, order: str) -> None:
    assert names("get", "clusters", "--sort-by", by) == [*order]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("tier=gold", "a"),
        ("tier==gold", "a"),
        ("tier!=gold", "bc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier in (gold, silver)", "ab"),
        ("tier notin (gold)", "bc"),
        ("tier in (gold,silver),fedsched.io/ring=1", "a"),
        ("tier=", ""),
    ],
)
def test_labels(selector: str, chosen: str) -> None:
    assert names("get", "clusters", "-l", selector) == [*chosen]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("spec.region=eu", "ac"),
        (".spec.region!=eu", "b"),
        ("status.agent.connected=true", "ac"),
        ("status.agent.connected=false", "b"),
        ("status.cordoned=false", "abc"),
        ("metadata.labels.fedsched.io/ring=1", "a"),
        ("spec.region=eu,metadata.name=c", "c"),
        ("metadata.name=nobody", ""),
        (r"metadata.labels.note=one\,two\\,metadata.name=a", "a"),
        (r"metadata.labels.note=one\,two", ""),
        (r"metadata.labels.note!=one\,two\\,spec.region=eu", "c"),
    ],
)
def test_fields(selector: str, chosen: str) -> None:
    assert names("get", "clusters", "--field-selector", selector) == [*chosen]


def test_headings_are_left_out_and_labels_added() -> None:
    rows = asked("get", "clusters", "--no-headers", "--show-labels").stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["a", "b", "c"]
    assert rows[0].endswith("fedsched.io/ring=1,note=one,two\\,tier=gold")
    assert rows[2].endswith("<none>")
    assert asked("get", "clusters", "--show-labels").stdout.splitlines()[0].endswith("LABELS")
    assert asked("get", "queue", "--show-labels").exit_code == 2


def test_what_selects_nothing_is_said() -> None:
    result = asked("get", "clusters", "--field-selector", "spec.reigon=eu")
    assert "no cluster here has a field spec.reigon" in result.stderr
    assert "None of 3 is selected." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-l", "a=b=c"], 1, "--selector: 'a=b=c' is none of key=value"),
        (["--field-selector", "region"], 1, "is neither field=value nor field!=value"),
        (["--field-selector", "metadata.name=a,b"], 1, r"a comma in a value is written as \,"),
        (["--sort-by", "size"], 1, "--sort-by: must be a field such as .metadata.name"),
        (
            ["-o", "xml"],
            2,
            "yaml, name, jsonpath=PATH, custom-columns=NAME:PATH,....",
        ),
        (["-o", "jsonpath"], 2, "say which parts: -o jsonpath={"),
        (["-o", "custom-columns=NAME"], 2, "'NAME' is not NAME:PATH"),
        (["-o", "name=x"], 2, "'name=x' is not one of"),
        (["-o", "jsonpath=$["], 2, "unexpected end of query"),
        (["-o", "jsonpath={range .items[*]}{.x}{end}"], 2, "one path alone is taken"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], code: int, words: str) -> None:
    result = asked("get", "clusters", *arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stdout == ""


def test_documents() -> None:
    shown = asked("get", "clusters", "-o", "json", "--sort-by", "-name").stdout
    assert [each["metadata"]["name"] for each in json.loads(shown)] == ["c", "b", "a"]
    alone = asked("get", "cluster", "b", "-o", "yaml").stdout
    assert yaml.safe_load(alone)["spec"]["region"] == "us"


@pytest.mark.parametrize(
    "path",
    ["$[*].metadata.name", "{.items[*].metadata.name}", ".items[*].metadata.name", "[*]..name"],
)
def test_a_path_in_a_list(path: str) -> None:
    assert asked("get", "clusters", "-o", f"jsonpath={path}").stdout.split() == ["a", "b", "c"]


def test_a_path_in_one() -> None:
    alone = ["get", "cluster", "a", "-o"]
    assert asked(*alone, "jsonpath={.spec.region}").stdout == "eu\n"
    assert json.loads(asked(*alone, "jsonpath=metadata.labels").stdout)["tier"] == "gold"
    nothing = asked(*alone, "jsonpath={.spec.nothing}")
    assert (nothing.stdout, nothing.stderr) == ("", "nothing is at $.spec.nothing\n")


def test_a_filter() -> None:
    path = "jsonpath=$[?@.spec.region=='us'].metadata.name"
    assert asked("get", "clusters", "-o", path).stdout == "b\n"


def test_top_clusters() -> None:
    heading, first, *_ = asked("top", "clusters").stdout.splitlines()
    assert heading.split("  ")[0] == "NAME"
    # 1 core runs and 2 replicas of half a core are promised, of 8 cores.
    assert first.split() == ["a", "1", "1", "25%", "4Gi", "0", "6%", "12%"]
    document = json.loads(asked("top", "cluster", "-o", "json").stdout)[0]
    assert document["resources"]["cpu"] == {
        "allocatable": "8",
        "running": "1",
        "promised": "1",
        "fullPercent": 25.0,
    }
    assert names("top", "clusters", "--sort-by", "-cpu-full") == ["a", "c", "b"]


def test_columns_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "custom-columns=NAME:.metadata.name,REGION:{.spec.region},NONE:.spec.x"
    lines = asked("get", "clusters", "-o", columns).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "REGION", "NONE"],
        ["a", "eu", "<none>"],
        ["b", "us", "<none>"],
        ["c", "eu", "<none>"],
    ]
    alone = asked("get", "cluster", "a", "-o", columns, "--no-headers").stdout
    assert alone.split() == ["a", "eu", "<none>"]
    later = followed(monkeypatch, [("d", cluster("d", "1"))], "-o", columns)
    assert [line.split()[0] for line in later] == ["NAME", "a", "b", "c", "d"]


def test_top_namespaces() -> None:
    lines = asked("top", "namespaces").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [["shop", "2", "8", "5", "1.25", "5Gi"]]


def test_what_components_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        {"name": "leader", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "2"}}},
        {"name": "worker", "replicas": 4},
    ]
    placed = [{"name": "leader", "replicas": 1}, {"name": "worker", "replicas": 4}]
    spec = {"components": parts, "clusters": [{"name": "a", "replicas": 5, "components": placed}]}
    document = {"metadata": {"namespace": "ml", "name": "set"}, "spec": spec}
    answer_with(monkeypatch, list_bindings=[of(resource_pb2.ResourceBinding, **document)])
    _, row = asked("top", "namespaces").stdout.splitlines()
    assert row.split()[:5] == ["ml", "1", "5", "5", "2"]


def test_a_namespace_asks_for_as_many_replicas_as_its_bindings_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 3}]
    spec = {"replicas": 3, "clusters": clusters}
    document = {"metadata": {"namespace": "shop", "name": "in-each"}, "spec": spec}
    answer_with(monkeypatch, list_bindings=[of(resource_pb2.ResourceBinding, **document)])
    _, row = asked("top", "namespaces").stdout.splitlines()
    assert row.split()[:4] == ["shop", "1", "6", "6"]
    assert "6/6" in asked("get", "bindings").stdout


class Following:
    """A connection whose list is told anew, or whose watch is."""

    def __init__(self, news: Sequence[Any]) -> None:
        self._news = news

    def call(self, method: Callable[[Any], Any]) -> Any:
        return asyncio.run(method(Answers()))

    def iterate(self, method: Callable[[Any], Any]) -> Iterator[Any]:
        yield from self._news
        raise KeyboardInterrupt


def followed(monkeypatch: pytest.MonkeyPatch, news: Sequence[Any], *arguments: str) -> list[str]:
    monkeypatch.setattr(kinds, "connection", lambda: Following(news))
    result = asked("get", "clusters", "--watch", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_what_changes_is_a_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    news = [
        ("a", MEMBERS[0]),
        ("b", cluster("b", "50", "us")),
        ("d", cluster("d", "1")),
        ("c", None),
    ]
    lines = followed(monkeypatch, news)
    assert [line.split()[0] for line in lines] == ["NAME", "a", "b", "c", "b", "d", "cluster/c"]
    assert lines[4].split()[5] == "49", "what did not change is not told"
    assert lines[-1] == "cluster/c deleted"
    told = [json.loads(line) for line in followed(monkeypatch, news, "-o", "json")]
    types = ["ADDED", "ADDED", "ADDED", "MODIFIED", "ADDED", "DELETED"]
    assert [each["type"] for each in told] == types
    assert told[-1]["object"]["metadata"]["name"] == "c"


def test_what_was_asked_for_anew_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = followed(monkeypatch, [MEMBERS, MEMBERS[:2]], "-o", "name", "-l", "!nothing")
    assert lines == ["cluster/a", "cluster/b", "cluster/c", "cluster/c"]


async def test_a_watch_is_told_as_changes() -> None:
    gone = clusters_pb2.ClusterEvent(
        type=resource_pb2.EVENT_TYPE_DELETED, cluster=cluster("b", "1")
    )
    mark = clusters_pb2.ClusterEvent(type=resource_pb2.EVENT_TYPE_BOOKMARK)
    there = clusters_pb2.ClusterEvent(type=resource_pb2.EVENT_TYPE_UPDATED, cluster=MEMBERS[0])

    async def watch() -> AsyncGenerator[Any]:
        for relist, events in ((True, []), (False, [there, mark]), (False, [gone])):
            yield SimpleNamespace(relist=relist, events=events, resource_version="1")

    told = [each async for each in changes_of(watch(), lambda event: event.cluster, CLUSTERS.named)]
    assert told == [("a", MEMBERS[0]), None, ("b", None)]


async def test_a_list_that_is_asked_for_again_outlives_a_pause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kinds, "POLL_SECONDS", 0.0)
    answers = iter([Unavailable("away"), [binding("web", 1, 1)]])

    async def fetch(api: Any) -> Any:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    polled: Any = kinds.news_of(fetch, None)
    assert [row.metadata.name for row in await anext(polled(None))] == ["web"]
    assert capsys.readouterr().err.startswith("error: away; asked again")
