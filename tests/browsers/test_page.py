"""The page in a real browser: nothing is wrong for machines that look, keyboards, narrow screens,
without scripts, and with names that mean harm.

Runs where ``FEDERATION_CHROMIUM`` names a Chromium or the PATH has one; what axe-core finds is
looked at where ``FEDERATION_AXE`` names its ``axe.min.js``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import pytest

from federation.v1.resource_pb2 import Cluster, ClusterSpec, ObjectMeta
from lab.browser import AXE, CHROMIUM, Browser, Chromium, Tab, chromium
from lab.control_planes import RunningControlPlane, report, running_control_plane
from lab.patience import until
from tests.unit.web.test_ui import WORKLOAD, binding

pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="no Chromium here to look at the page with: set FEDERATION_CHROMIUM"
)

# What is not printable is refused by the API; how pages show it is tried without a browser.
HOSTILE: Final = (
    "<script>window.alerted = 1</script>",
    "\N{ARABIC LETTER ALEF}\N{ARABIC LETTER LAM}\N{ARABIC LETTER MEEM} 12 abc",
    "\N{PILE OF POO}\N{ROCKET}",
    "x" * 253,
)
WIDTHS: Final = (400, 1280, 2560)
SERIOUS: Final = """
axe.run().then(found => found.violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => each.id + " " + each.nodes.map(node => node.html.slice(0, 200)).join(" | ")))
"""
# What is wider than the screen, but for what scrolls by itself.
BEYOND: Final = """(() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  return wide <= 0 ? [] : [wide, ...[...document.querySelectorAll("body *")]
    .filter(it => !it.closest(".wide, nav") && it.getBoundingClientRect().right > innerWidth)
    .map(it => it.outerHTML.slice(0, 200))];
})()"""
# What has the focus, in words; each place is met once on the way through a page.
FOCUSED: Final = """(() => {
  const all = [...document.querySelectorAll("*")], it = document.activeElement;
  return it === document.body ? "" : it.tagName + " " + all.indexOf(it);
})()"""
# Elements that a keyboard has to reach: of radio buttons and hidden ones there are none.
REACHABLE: Final = """[...document.querySelectorAll(
  "a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter(each => each.checkVisibility() && each.type !== "hidden").length"""

IN_SIGHT: Final = """(() => {
  const { left, right } = document.querySelector("nav a[aria-current]").getBoundingClientRect();
  return left >= 0 && right <= window.innerWidth;
})()"""


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    """A fleet with a bit of everything, under names of all kinds."""
    async with (
        running_control_plane(database_url, tmp_path) as plane,
        plane.connected("alpha", report=report()),
        plane.connected("a" * 48, report=report()),
    ):
        admin = plane.admin
        member = binding("member", 1)
        member.binding.spec.gang.name, member.binding.spec.gang.size = "training", 2
        requests = [member, binding("too-many", 500)]
        for number, text in enumerate(HOSTILE):
            requests.append(binding(f"web-{number}", 1))
            requests[-1].binding.spec.resource.name = text
        for request in requests:
            await admin.call(admin.scheduling.Schedule, request)
        spec = ClusterSpec(region=HOSTILE[0], provider=HOSTILE[2])
        cluster = Cluster(metadata=ObjectMeta(name="alpha"), spec=spec)
        await admin.ask("UpdateCluster", cluster=cluster)
        yield plane


@pytest.fixture
async def browser() -> AsyncIterator[Chromium]:
    async with chromium() as running_browser:
        yield running_browser


def address(running: RunningControlPlane, path: str) -> str:
    return f"http://{running.plane.web_endpoint}{path}"


async def views(running: RunningControlPlane) -> list[str]:
    """One of each kind, for who has signed in."""
    reader = Browser(address=running.plane.web_endpoint)
    ways = ["/ui/", "/ui/bindings", "/ui/queue", "/ui/gangs", "/ui/plans", "/ui/ask?cpu=1"]
    ways += ["/ui/compare", "/ui/what-if", "/ui/about", "/ui/audit", "/ui/sign-in"]
    ways += ["/ui/cluster?name=alpha", "/ui/gang?namespace=shop&name=training"]
    ways += [f"/ui/binding?namespace=shop&name=web-{n}" for n in range(len(HOSTILE))]
    links = (await reader.get("/ui/binding?namespace=shop&name=web-0")).document.links("/ui/")
    return [*ways, next(each for each in links if each.startswith("/ui/decision"))]


async def sign_in(running: RunningControlPlane, tab: Tab) -> None:
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    await tab.open(address(running, "/ui/sign-in"))
    await tab.value(f"document.getElementById('token').value = {token!r}")
    await submitted(tab, "form[action='/ui/sign-in']")


async def submitted(tab: Tab, form: str) -> None:
    """The form is sent, and its answer is there."""
    await tab.value("window.isBefore = true")
    await tab.value(f"void document.querySelector({form!r}).requestSubmit()")

    async def is_after() -> bool:
        loaded = "document.readyState === 'complete' && !window.isBefore"
        return bool(await tab.value(loaded))

    await until(is_after, bool)


async def check(tab: Tab, where: str) -> None:
    assert tab.troubles == [], where
    assert all(each.startswith(("http://127.0.0.1:", "data:")) for each in tab.requests), where
    assert await tab.value("typeof window.alerted") == "undefined"
    if AXE:
        await tab.value(Path(AXE).read_text(encoding="utf-8") + "; 1")  # noqa: ASYNC240 - short
        assert await tab.value(SERIOUS) == [], where


async def walk(tab: Tab, most: int) -> Iterable[str]:
    """The places that Tab leads to, from the top of the page, until it leaves it."""
    places: list[str] = []
    for _ in range(most):
        await tab.press("Tab")
        place = await tab.value(FOCUSED)
        if not place or place in places:
            break
        places.append(place)
    return places


async def test_every_view_is_well_in_a_browser(
    running: RunningControlPlane, browser: Chromium
) -> None:
    async with browser.tab() as tab:
        await sign_in(running, tab)
        for number, path in enumerate(await views(running)):
            dark, width = bool(number % 2), WIDTHS[number % len(WIDTHS)]
            await tab.look(width=width, dark=dark)
            await tab.open(address(running, path))
            await check(tab, f"{path} {width} dark={dark}")
            for narrow in WIDTHS:
                await tab.look(width=narrow, dark=dark)
                assert await tab.value(BEYOND) == [], (path, narrow)
            if path == "/ui/sign-in":
                # It begins in the field for the token.
                continue
            reachable = await tab.value(REACHABLE)
            assert len(list(await walk(tab, reachable + 5))) >= reachable, path


async def test_the_tab_of_the_page_is_in_sight_on_a_phone(
    running: RunningControlPlane, browser: Chromium
) -> None:
    async with browser.tab() as tab:
        await sign_in(running, tab)
        await tab.look(width=min(WIDTHS))
        for path in ("/ui/", "/ui/audit"):
            await tab.open(address(running, path))
            assert await tab.value(IN_SIGHT), path


async def test_forms_are_answered_in_a_browser(
    running: RunningControlPlane, browser: Chromium
) -> None:
    async with browser.tab() as tab:
        await tab.look(width=1280)
        for path, fields in (
            ("/ui/ask", {"preview": WORKLOAD}),
            ("/ui/compare", {"text": WORKLOAD, "other": WORKLOAD}),
            ("/ui/what-if", {}),
        ):
            await tab.open(address(running, path))
            for name, text in fields.items():
                field = "text" if name == "preview" else name
                await tab.value(f"document.querySelector('[name={field}]').value = {text!r}")
            form = {"/ui/ask": "form[action='/ui/preview']"}.get(path, f"form[action='{path}']")
            await submitted(tab, form)
            await check(tab, path)
            assert await tab.value("document.querySelector('main section') !== null"), path
            # What was pasted stays as it was.
            for name, text in fields.items():
                field = "text" if name == "preview" else name
                value = await tab.value(f"document.querySelector('[name={field}]').value")
                assert value.strip() == text.strip()


async def test_keys_lead_to_views_and_the_page_is_whole_without_scripts(
    running: RunningControlPlane, browser: Chromium
) -> None:
    async with browser.tab() as tab:
        await tab.open(address(running, "/ui/"))
        await tab.press("/")
        assert await tab.value("document.activeElement.id") == "q"
        await tab.press("Escape")
        await tab.press("?")
        assert await tab.value("document.getElementById('help').open") is True
        await tab.press("Escape")
        await tab.press("g")
        await tab.press("q")

        async def place() -> str:
            return str(await tab.value("location.pathname"))

        await until(place, lambda path: path == "/ui/queue")
    async with browser.tab() as tab:
        await tab.block_scripts()
        for path in await views(running):
            await tab.open(address(running, path))
            title = await tab.value("document.querySelector('h1').textContent")
            assert title.strip(), path
            assert tab.troubles == [] or path == "/ui/audit", (path, tab.troubles)
