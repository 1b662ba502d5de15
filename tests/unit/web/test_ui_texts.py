"""What pages show, of which fleet, and that nothing that others named acts on them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from federation.model.printable import is_printable
from federation.v1.resource_pb2 import Cluster, ClusterSpec, ObjectMeta
from federation.web.ui.words import ago, counted, measured, percent, shown, signed
from lab.browser import Browser
from lab.control_planes import RunningControlPlane, report
from lab.patience import until
from tests.api.calls import binding as workload
from tests.unit.web.test_ui import bars, check

FOLDER = Path(__file__).parents[3] / "federation" / "web" / "ui"
GIB = 1 << 30
HOSTILE = [
    "<script>alert(1)</script>",
    "'\" onmouseover=alert(1) x='",
    "\u202egnp.exe\u202c",
    "a\x1b[31m\n\tb",
    "</title></textarea><img src=//evil.example>",
    "javascript:alert(1)",
    "{{7*7}}${7*7}<% 1/0 %>",
    "x" * 200,
    "\N{PILE OF POO}\u200d\N{ROCKET}",
]


def seen_as(text: str) -> str:
    """A text without what is not seen, or is in every quotation."""
    return re.sub(r"[\s'\"]", "", text)


async def test_what_others_named_is_legible_and_harmless(running: RunningControlPlane) -> None:
    """In every place where a page shows a text of others."""
    browser, admin = Browser(address=running.plane.web_endpoint), running.admin
    paths = {"/ui/", "/ui/bindings", "/ui/queue", "/ui/about"}
    for text in HOSTILE:
        paths |= {f"/ui/?q={quote(text)}", f"/ui/bindings?name={quote(text)}"}
    # What is not printable is refused where it is named, and can only be asked for.
    named_so = list(filter(is_printable, HOSTILE))
    for number, text in enumerate(named_so):
        await running.enrolled(f"c{number}")
        spec = ClusterSpec(region=text, provider=text)
        cluster = Cluster(metadata=ObjectMeta(name=f"c{number}"), spec=spec)
        await admin.ask("UpdateCluster", cluster=cluster)
        await admin.ask("FreezeFailover", region=text, reason=text)
        named = workload(f"b{number}", replicas=1)
        named.spec.resource.kind = named.spec.resource.name = text
        await admin.ask("Schedule", binding=named)
        paths |= {f"/ui/cluster?name=c{number}", f"/ui/binding?namespace=shop&name=b{number}"}
    await until(lambda: browser.get("/ui/"), lambda page: f"c{len(named_so) - 1}" in page.body)
    seen: dict[str, str] = {}
    for path in paths:
        page = await browser.get(path)
        check(page)
        document = page.document
        assert [each.attributes["src"] for each in document.all("img")] == ["/ui/static/icon.svg"]
        for each in document.elements:
            address = each.attributes.get("href", "/")
            assert address == "" or address[0] in "/#"
            assert not address.startswith("//")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200d\u202a-\u202e]", page.body), path
        seen[path] = seen_as(document.text)
    for text in named_so:
        for path in ("/ui/bindings", "/ui/about"):
            assert seen_as(text) in seen[path], path


async def test_links_to_further_bindings_keep_what_was_asked(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.web.ui.views.ROWS", 1)
    for name in ("a-one", "a-two"):
        await running.admin.ask("Schedule", binding=workload(name, replicas=1))
    asked = "/ui/bindings?namespace=shop&name=a-&standing=nowhere"
    page = await Browser(address=running.plane.web_endpoint).get(asked)
    links = [each for each in page.document.links(asked) if each.startswith("/ui/bindings?")]
    assert f"{asked}&after_namespace=shop&after_name=a-one" in links


async def test_a_fleet_is_filtered_and_put_in_order(running: RunningControlPlane) -> None:
    browser, admin = Browser(address=running.plane.web_endpoint), running.admin
    few = report(nodes=2)
    async with (
        running.connected("eu-1", report=few),
        running.connected("eu-2", report=report()),
    ):
        await running.enrolled("us-1")
        for name, labels in (("eu-1", {"tier": "gold", "gpu": ""}), ("eu-2", {}), ("us-1", {})):
            cluster = Cluster(
                metadata=ObjectMeta(name=name, labels=labels), spec=ClusterSpec(region=name[:2])
            )
            await admin.ask("UpdateCluster", cluster=cluster)
        await admin.ask("CordonCluster", name="us-1", cordoned=True)
        await until(lambda: browser.get("/ui/?q=gpu"), lambda page: "eu-1" in page.body)

        async def found(text: str, sort: str = "name") -> list[str]:
            page = await browser.get(f"/ui/?q={quote(text)}&sort={sort}")
            assert page.status == 200, page.body
            rows = page.body.partition("<tbody")[2].partition("</tbody>")[0]
            return list(dict.fromkeys(re.findall(r"/ui/cluster\?name=([\w-]+)", rows)))

        assert await found("") == ["eu-1", "eu-2", "us-1"]
        assert await found("eu") == ["eu-1", "eu-2"]
        assert await found("eu tier=gold") == await found("gpu") == ["eu-1"]
        assert await found("health=ready") == ["eu-1", "eu-2"]
        assert await found("tier!=gold,region=eu") == ["eu-2"]
        assert await found("!gpu -1") == await found("health=not-seen") == ["us-1"]
        for sort, first in (("health", "us-1"), ("age", "us-1"), ("nodes", "eu-2")):
            assert (await found("", sort))[0] == first, sort


async def test_bars_and_pools_tell_what_runs_is_promised_waits_and_is_left(
    running: RunningControlPlane,
) -> None:
    browser = Browser(address=running.plane.web_endpoint)
    used = report(allocated={"cpu": 3000, "pods": 9}, allocating={"cpu": 6000, "pods": 2})
    async with running.connected("alpha", report=used):
        await running.admin.ask("Schedule", binding=workload("web", replicas=2))
        page = await until(
            lambda: browser.get("/ui/cluster?name=alpha"), lambda page: "2 cores pro" in page.body
        )
    cpu = "cpu: 3 cores running, 2 cores promised, 6 cores waiting, 11 cores free of 16 cores"
    assert cpu in bars(page)
    labels = [each.attributes.get("aria-label", "") for each in page.document.all("svg")]
    assert any("nodes with 4 cores free" in each for each in labels), labels


async def test_after_signing_in_it_goes_on_here(guarded: RunningControlPlane) -> None:
    token = guarded.plane.admin_token_file.read_text(encoding="ascii").strip()
    for place, page in (
        ("/ui/queue?namespace=a%26b", "/ui/queue?namespace=a%26b"),
        ("//evil.example/ui/", "/ui/"),
        ("https://evil.example/ui/", "/ui/"),
        ("/ui/\\evil", "/ui/"),
        ("/ui/\r\nset-cookie: a=b", "/ui/"),
        ("", "/ui/"),
    ):
        browser = Browser(address=guarded.plane.web_endpoint)
        given = await browser.post("/ui/sign-in", {"token": token, "next": place})
        assert (given.status, given.headers["location"]) == (303, page), place


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
