"""Forms of the page that change nothing, and what plans are told by theirs."""

from __future__ import annotations

import pytest
from starlette.routing import Mount, Route

from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest
from federation.operations.table import OPERATIONS
from federation.plans.plan import PlanKind
from federation.services.plans.drafting import PlanWish
from federation.web.ui.plan_views import plan_in
from lab.browser import Answered, Browser
from lab.control_planes import RunningControlPlane, report
from tests.api.calls import scheduled
from tests.unit.web.test_ui import EVIL, WORKLOAD, binding, check

ONE_CLUSTER = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: one, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    clusterAffinity: {clusterNames: [alpha]}
    replicaScheduling: {replicaSchedulingType: Divided}
"""
BINDING = """
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {name: web, namespace: shop}
spec:
  resource: {apiVersion: apps/v1, kind: Deployment, name: web}
  replicas: 4
  replicaRequirements: {resourceRequest: {cpu: "1"}}
  placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}
"""


async def test_two_placements_are_compared_cluster_by_cluster(
    running: RunningControlPlane,
) -> None:
    browser = Browser(address=running.plane.web_endpoint)

    async def compared(text: str, other: str) -> Answered:
        secret = (await browser.get("/ui/compare")).document.field("form_secret")
        fields = {"form_secret": secret, "text": text, "other": other}
        page = await browser.post("/ui/compare", fields)
        if page.status != 403:
            check(page)
        return page

    async with (
        running.connected("alpha", report=report()),
        running.connected("beta", report=report()),
    ):
        example = (await browser.get("/ui/compare?example=yes")).document.all("textarea")
        shown = await compared(*(each.text for each in example))
        assert "Both come to the same" not in shown.document.text
        assert (shown.status, shown.document.text.count("SCHEDULED")) == (200, 2)
        shown = await compared(WORKLOAD, ONE_CLUSTER)
        text = shown.document.text
        assert shown.status == 200, text
        assert ("alpha" in text, "beta" in text, "Both come to the same" in text) == (
            *(True, True),
            False,
        )
        assert "ClusterAffinity" in text
        assert "Both come to the same" in (await compared(WORKLOAD, WORKLOAD)).document.text
        # A binding takes the placement of a policy.
        bound = (await compared(BINDING, ONE_CLUSTER)).document.text
        assert "8 replicas" in bound
        assert "4 replicas" in bound
        for other, said in (
            ("", "is required"),
            ("kind: [" + EVIL, "is not YAML"),
            (ONE_CLUSTER + "---" + ONE_CLUSTER, "twice"),
        ):
            refused = await compared(WORKLOAD, other)
            assert (refused.status, said in refused.document.text) == (422, True), refused.body
        # Nothing of it was committed.
        assert "Nothing has been scheduled" in (await browser.get("/ui/bindings")).document.text
        stranger = await browser.post("/ui/compare", {"text": WORKLOAD, "other": ONE_CLUSTER})
        assert stranger.status == 403


async def test_decisions_of_the_last_hours_are_played_with_a_change(
    fresh: RunningControlPlane,
) -> None:
    running = fresh
    browser = Browser(address=running.plane.web_endpoint)

    async def played(**fields: str) -> Answered:
        form = await browser.get("/ui/what-if")
        check(form)
        fields["form_secret"] = form.document.field("form_secret")
        page = await browser.post("/ui/what-if", fields)
        check(page)
        return page

    assert "Nothing was decided in that time" in (await played()).document.text
    async with (
        running.connected("alpha", report=report()),
        running.connected("beta", report=report()),
    ):
        await scheduled(running, binding("web", 6))
        same = (await played()).document.text
        assert "0 of 1 decision" in same
        changed = await played(without="alpha", cordoned="gamma", hours="6")
        text = changed.document.text
        assert "1 of 1 decision" in text
        assert "In no fleet of that time" in text
        assert "gamma" in text
        assert "shop/web" in text
        assert "beta=6" in text
        policy = (await played(policies=ONE_CLUSTER, hours="24")).document.text
        assert "1 of 1 decision" in policy
        assert "alpha=6" in policy
        for fields, said in (
            ({"policies": "kind: [" + EVIL}, "is not YAML"),
            ({"hours": "5"}, "must be one of 1, 6, 24, 168"),
            ({"without": " ".join(map(str, range(101)))}, "at most 100 clusters"),
        ):
            refused = await played(**fields)
            assert (refused.status, said in refused.document.text) == (422, True), refused.body


async def test_a_token_is_in_no_address_and_a_cookie_of_before_is_no_session(
    guarded: RunningControlPlane,
) -> None:
    running = guarded
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    for path in (f"/ui/?token={token}", f"/ui/sign-in?token={token}"):
        browser = Browser(address=running.plane.web_endpoint)
        asked = await browser.get(path)
        assert (asked.status, asked.cookies) in ((303, ()), (200, ()))
        assert (await browser.get("/ui/")).status == 303
    browser = Browser(address=running.plane.web_endpoint)
    elsewhere = {"token": token, "next": "/ui/"}
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
    ):
        refused = await browser.post("/ui/sign-in", elsewhere, **headers)
        assert (refused.status, refused.cookies) == (403, ()), headers
    # Who set a cookie before is not signed in by who signs in with it.
    given = await browser.post("/ui/sign-in", elsewhere)
    assert token not in given.headers["location"]
    before = dict(browser.cookies)
    again = await browser.post("/ui/sign-in", elsewhere)
    assert again.status == 303
    assert before != browser.cookies
    thief = Browser(address=running.plane.web_endpoint, cookies=before)
    assert (await thief.get("/ui/")).status == 303
    # Forms of one session are of no use in another one, and none has the token in it.
    for path in ("/ui/ask", "/ui/compare", "/ui/what-if", "/ui/plans"):
        page = await browser.get(path)
        check(page)
        assert token not in page.body
        assert {form.attributes["method"] for form in page.document.all("form")} <= {
            *("post", "get", "dialog"),
        }
        posted = [
            each.attributes["action"]
            for each in page.document.all("form")
            if each.attributes["method"] == "post"
        ]
        other = Browser(address=running.plane.web_endpoint)
        await other.post("/ui/sign-in", elsewhere)
        secret = page.document.field("form_secret")
        for action in posted:
            crossed = await other.post(action, {"form_secret": secret})
            assert crossed.status == 403, action


def wish_in(fields: dict[str, str]) -> PlanWish:
    """Read a form as the operation that it asks for reads its request."""
    read, violations = OPERATIONS["/federation.v1.Rebalance/CreatePlan"].read, Violations()
    assert read is not None
    wish: PlanWish = read(plan_in(fields), violations)
    violations.check()
    return wish


def test_a_plan_is_told_its_budgets_and_selectors() -> None:
    wish = wish_in(
        {
            "kind": "consolidate",
            "clusters": "b, a",
            "selector": "app=web tier=front",
            "moves_at_once": "3",
            "moves_per_cluster": "",
            "max_moves": "40",
            "max_moved_percent": " 50 ",
            "headroom_percent": "0",
        }
    )
    assert (wish.kind, wish.clusters) == (PlanKind.CONSOLIDATE, ("a", "b"))
    limits = wish.limits
    assert (limits.moves_at_once, limits.moves_per_cluster, limits.most_moves) == (3, 0, 40)
    assert (limits.moved_percent, limits.headroom_percent) == (50, 0)
    assert limits.selector == {"app": "web", "tier": "front"}
    labelled = wish_in({"kind": "drain", "cluster_selector": "tier=old"})
    assert (labelled.clusters, labelled.cluster_selector) == ((), {"tier": "old"})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "tidy"}, "kind"),
        ({"kind": "drain"}, "clusters"),
        ({"kind": "drain", "clusters": "a", "moves_at_once": "many"}, "moves_at_once"),
        ({"kind": "drain", "clusters": "a", "max_moves": "9" * 400}, "max_moves"),
        ({"kind": "drain", "clusters": "a", "headroom_percent": "5"}, "headroomPercent"),
        ({"kind": "drain", "clusters": "a", "cluster_selector": "b=c"}, "clusterSelector"),
        ({"kind": "balance", "selector": "web"}, "selector"),
    ],
)
def test_what_a_plan_cannot_be_told_names_the_field(fields: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wish_in(fields)
    assert said in str(refused.value)


async def test_nothing_may_be_shown_in_a_frame_of_others(running: RunningControlPlane) -> None:
    """Whatever it answers: pages, what forms are sent to, refusals and where it sends on to."""
    browser = Browser(address=running.plane.web_endpoint)
    (mount,) = (each for each in running.plane.parts.ui.routes if isinstance(each, Mount))
    routes = [each for each in mount.routes or () if isinstance(each, Route)]
    assert len(routes) > 20
    for route in routes:
        if route.path == "/events":
            # It does not end.
            continue
        path, is_form = f"/ui{route.path}", "POST" in (route.methods or ())
        answer = await (browser.post(path, {}) if is_form else browser.get(path))
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert answer.headers["x-frame-options"] == "DENY", path
