"""What pages are drawn from, and that nothing that others named acts on them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federation.capacity.cluster_room import ReportId, Room
from federation.model.cluster import (
    Cluster,
    ClusterState,
    ResourceSummary,
    Taint,
    TaintEffect,
)
from federation.model.placement import Binding
from federation.model.printable import printable
from federation.model.reported_pools import pools_of
from federation.model.reservations import Outstanding
from federation.model.waiting import Wait, WaitState
from federation.model.workload import ObjectReference, ReplicaRequirements, TargetCluster
from federation.services.binding_ports import BindingStanding
from federation.services.fleet.registry import FleetOwner
from federation.services.waiting_ports import QueuedBinding
from federation.web import ui
from federation.web.ui.admission import Visitor, page_of_ours
from federation.web.ui.captions import heat, workload_text
from federation.web.ui.drawing import draw
from federation.web.ui.overview import (
    Health,
    Meter,
    in_order,
    matching,
    meters_of,
    picture,
    totals,
)
from federation.web.ui.pool_picture import common_labels, pool_pictures
from federation.web.ui.words import ago, counted, measured, percent, shown, signed
from lab.browser import Document
from lab.services import GIB, make_report, one_node

FOLDER = Path(ui.__file__).parent
HOSTILE = [
    "<script>alert(1)</script>",
    "'\" onmouseover=alert(1) x='",
    "\u202egnp.exe\u202c",
    "a\x1b[31m\n\tb\x00",
    "</title></textarea><img src=//evil.example>",
    "javascript:alert(1)",
    "{{7*7}}${7*7}<% 1/0 %>",
    "x" * 253,
    "\N{PILE OF POO}\u200d\N{ROCKET}",
]
COMMON = {
    "path": "/ui/",
    "query": {"q": HOSTILE[0]},
    "visitor": Visitor(),
    "is_live": True,
    "is_private": True,
    "is_whole": True,
    "now": 1000.0,
}
SHAPE = ReplicaRequirements(request={"cpu": 500, "memory": GIB})


def fleet_of(*states: ClusterState) -> FleetOwner:
    nothing: Any = None
    owner = FleetOwner(nothing)
    for state in states:
        owner.put_cluster(state.cluster)
        if state.report is not None:
            owner.put_report(state.cluster.name, state.report, 990.0)
        name = state.cluster.name
        owner.put_presence(name, replace(owner.known(name).presence, silent_after=2000.0))
    return owner


def fleet_page(text: str) -> str:
    cluster = Cluster(
        name="c1",
        region=text,
        provider=text,
        labels={"key": text},
        taints=(Taint(key=text, value=text, effect=TaintEffect.NO_SCHEDULE),),
    )
    rows = picture(fleet_of(ClusterState(cluster=cluster, report=make_report())).snapshot, 1000.0)
    return draw(
        "fleet",
        **COMMON,
        title=text,
        every=rows.rows,
        rows=rows.rows,
        first=0,
        step=10,
        count=1,
        resources=rows.resources,
        meters=[totals(rows.rows, "cpu")],
        on_map=rows.rows,
        text=text,
        sort="name",
        sorts=("name", text),
    )


def queue_page(text: str) -> str:
    wait = Wait(state=WaitState.GATED, since=1.0, short_of=text, gate=text, overtaken_since=2.0)
    queued = QueuedBinding(
        namespace=text,
        name=text,
        uid="",
        priority=0,
        wait=replace(wait, overtaken_by=text),
        position=1,
        decision_id=text,
    )
    return draw(
        "queue",
        **COMMON,
        title=text,
        queued=[queued],
        is_last=False,
        is_first=False,
        namespace=text,
    )


def bindings_page(text: str) -> str:
    binding = Binding(
        namespace=text,
        name=text,
        resource=ObjectReference(kind=text, name=text),
        clusters=(TargetCluster(name=text, replicas=1),),
    )
    return draw(
        "bindings",
        **COMMON,
        title=text,
        bindings=[binding],
        next_after=(text, text),
        namespace=text,
        name_part=text,
        standing=BindingStanding.PLACED,
        is_first=False,
    )


def test_links_to_further_bindings_keep_what_was_asked() -> None:
    document = Document(bindings_page("a&b"))
    links = [each for each in document.links("/ui/bindings") if each.startswith("/ui/bindings?")]
    first = "/ui/bindings?namespace=a%26b&name=a%26b&standing=placed"
    assert sorted(links) == [first, f"{first}&after_namespace=a%26b&after_name=a%26b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_named_is_legible_and_harmless(text: str) -> None:
    """In every place where a page shows a text of others."""
    for drawn in (fleet_page, queue_page, bindings_page):
        page = drawn(text)
        document = Document(page)
        assert [each.attributes.get("src") for each in document.all("script")] == [
            "/ui/static/page.js"
        ]
        assert [each.attributes["src"] for each in document.all("img")] == ["/ui/static/icon.svg"]
        for each in document.elements:
            assert not any(name.startswith("on") for name in each.attributes)
            address = each.attributes.get("href", "/")
            assert address == "" or address[0] in "/#"
            assert not address.startswith("//")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200d\u202a-\u202e]", page)
        # What is seen of it is what it is, or how Python writes it.
        seen = "".join(each for each in printable(text) if each not in " '\"")
        assert seen in re.sub(r"[\s'\"]", "", document.text)


def test_bars_tell_what_runs_is_promised_and_waits_apart() -> None:
    summary = ResourceSummary(
        allocatable={"pods": 100, "example.com/gpu": 4, "memory": 8 * GIB, "cpu": 8000},
        allocated={"pods": 9, "cpu": 3000, "memory": 2 * GIB},
        allocating={"cpu": 6000, "pods": 2},
    )
    seen = Outstanding("a/b", SHAPE, 4, in_summary=2, credited=1)
    meters = meters_of(summary, [seen, Outstanding("a/c", SHAPE, 3, in_summary=3)])
    assert list(meters) == ["cpu", "memory", "pods", "example.com/gpu"]
    cpu = meters["cpu"]
    assert cpu == Meter("cpu", allocatable=8000, running=3000, promised=2000, waiting=6000)
    assert (cpu.free, cpu.share, cpu.whole) == (3000, 5 / 8, 11_000)
    assert meters["pods"].promised == 4
    assert Meter("cpu", running=1).share == 1.0
    assert Meter("cpu").share == 0.0
    assert [heat(each) for each in (-1.0, 0.0, 0.55, 1.0, 7.0)] == [0, 0, 5, 10, 10]


def test_a_fleet_is_filtered_and_put_in_order() -> None:
    lost = (Taint(key="fedsched.io/unreachable", effect=TaintEffect.NO_EXECUTE, time_added=5.0),)
    owner = fleet_of(
        ClusterState(
            cluster=Cluster(name="eu-1", region="eu", labels={"tier": "gold", "gpu": ""}),
            report=make_report(cpu_millis=1000),
        ),
        ClusterState(cluster=Cluster(name="eu-2", region="eu", taints=lost), report=make_report()),
        ClusterState(cluster=Cluster(name="us-1", region="us", cordoned=True)),
    )
    owner.put_presence("us-1", replace(owner.known("us-1").presence, silent_after=1.0))
    rows = picture(owner.snapshot, 1000.0).rows
    assert [each.health for each in rows] == [Health.READY, Health.LOST, Health.UNSEEN]

    def found(text: str) -> list[str]:
        return [each.name for each in filter(matching(text), rows)]

    assert found("") == ["eu-1", "eu-2", "us-1"]
    assert found("eu") == ["eu-1", "eu-2"]
    assert found("eu tier=gold") == found("gpu") == found("health=ready") == ["eu-1"]
    assert found("tier!=gold,region=eu") == ["eu-2"]
    assert found("!gpu -1") == found("health=not-seen") == ["us-1"]
    for by, names in {
        "name": ["eu-1", "eu-2", "us-1"],
        "health": ["eu-2", "us-1", "eu-1"],
        "age": ["us-1", "eu-1", "eu-2"],
        "nodes": ["eu-1", "eu-2", "us-1"],
    }.items():
        assert [each.name for each in in_order(rows, by)] == names, by


def test_pools_show_what_is_left_beside_promises() -> None:
    pools = pools_of(one_node({"cpu": 4000, "memory": 8 * GIB, "pods": 10}))
    room = Room.of(ReportId(1, 1), pools, [Outstanding("a/b", SHAPE, 2, in_summary=2)])
    (pool,) = pool_pictures(room)
    assert (pool.nodes, pool.free["cpu"], pool.left["cpu"]) == (1, 4000, 3000)
    assert [(each.x, each.width, each.free) for each in pool.rectangles] == [(0.0, 100.0, 0.75)]


def test_labels_that_all_pools_have_are_told_once() -> None:
    pools = pools_of(one_node({"cpu": 4000, "memory": 8 * GIB, "pods": 10}))
    (pool,) = pool_pictures(Room.of(ReportId(1, 1), pools, []))
    some = replace(pool, labels={"os": "linux", "zone": "a"})
    others = replace(pool, labels={"os": "linux", "zone": "b"})
    assert common_labels([some, others]) == {"os": "linux"}
    assert common_labels([some, others, pool]) == common_labels([some]) == common_labels([]) == {}


def test_a_workload_without_a_namespace_is_named_without() -> None:
    workload = ObjectReference(api_version="batch/v1", kind="Job", name="a")
    assert workload_text(workload) == "Job a"
    assert workload_text(replace(workload, namespace="shop")) == "Job shop/a"


def test_values_are_in_units_that_people_read() -> None:
    assert [percent(each) for each in (0.0, 0.001, 0.5, 1.2)] == ["0 %", "< 1 %", "50 %", "120 %"]
    assert measured("cpu", 1500) == "1.5 cores"
    assert (measured("cpu", 1000), measured("cpu", 3_239_898)) == ("1 core", "3,240 cores")
    assert (measured("cpu", 24_782), measured("cpu", 26_000)) == ("24.8 cores", "26 cores")
    assert measured("memory", 3 * GIB) == "3Gi"
    assert [signed(each) for each in (1200, 0, -3)] == ["+1,200", "same", "\N{MINUS SIGN}3"]
    assert signed(-0.256, ".2f") == "\N{MINUS SIGN}0.26"
    assert (counted(1, "node"), counted(1234, "node")) == ("1 node", "1,234 nodes")
    assert counted(2, "replica has", "replicas have") == "2 replicas have"
    moment = '<time datetime="1970-01-01T00:15:00Z" title="1970-01-01T00:15:00Z">{}</time>'
    assert ago(900.0, 1000.0) == moment.format("100s ago")
    assert ago(900.0, 900.5) == moment.format("now")
    assert ago(900.0, 400.0) == moment.format("in 8m")
    assert ago(None, 1.0) == "never"
    assert shown("<a>\u202e") == "&lt;a&gt;\\u202e"


@pytest.mark.parametrize(
    ("place", "page"),
    [
        ("/ui/queue?namespace=a%26b", "/ui/queue?namespace=a%26b"),
        ("//evil.example/ui/", "/ui/"),
        ("https://evil.example/ui/", "/ui/"),
        ("/ui/\\evil", "/ui/"),
        ("/ui/\r\nset-cookie: a=b", "/ui/"),
        ("", "/ui/"),
    ],
)
def test_after_signing_in_it_goes_on_here(place: str, page: str) -> None:
    assert page_of_ours(place) == page


def test_no_template_goes_around_the_escaping() -> None:
    templates = sorted((FOLDER / "templates").glob("*.html"))
    assert len(templates) >= 10
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert re.findall(r"\$\{[^}]*\|\s*\w+\s*\}", text) == [], template
        assert "n-filter" not in text
        assert re.findall(r"<%(?:page|!).*(?:expression_filter|default_filters)", text) == []
        # Style and scripts are files of their own, and nothing comes from elsewhere.
        assert (
            re.findall(r"<style|<script(?! src=\"/ui/static/)|style=|https?://(?!localhost)", text)
            == []
        )


def test_the_script_stays_small() -> None:
    script = (FOLDER / "static" / "page.js").read_text(encoding="utf-8")
    assert len(script.splitlines()) <= 150
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", script
    )
