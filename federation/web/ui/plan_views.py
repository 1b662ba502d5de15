"""Plans on the page: what would move, what moves, and what people say to that.

Must not move anything: a plan that was approved is carried out by others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from federation.codec.violations import Violations
from federation.model.access import Scope
from federation.model.errors import InvalidRequest
from federation.plans.plan import Plan, PlanKind, PlanStep, StepState, cordoned_by
from federation.plans.words import GainWords, gain_words
from federation.services.plans.control import PlanControl
from federation.v1 import rebalance_pb2
from federation.web.ui.requests import number_of, pairs_in
from federation.web.ui.views import ROWS, Page

MOST_PLANS: Final = 50
MOST_UNMOVED: Final = 100
MOST_CLUSTERS: Final = 20
MOST_REASON_CHARACTERS: Final = 200
LARGEST_ID: Final = 2**63 - 1
# Fields of the form that are whole numbers; left empty they are what plans have by themselves.
NUMBERS: Final = (
    "moves_at_once",
    "moves_per_cluster",
    "max_moves",
    "max_moved_percent",
    "headroom_percent",
    "tolerance_percent",
)
LARGEST_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """What a plan does to the replicas of its bindings in one cluster."""

    name: str
    before: int
    after: int


class PlanViews:
    """Views of plans; all raise what ``PlanControl`` raises, and InvalidRequest."""

    def __init__(self, control: PlanControl) -> None:
        self._control = control

    async def plans(self, request: Request, _: Scope) -> Page:
        before = number_of(request, "before", least=1, most=LARGEST_ID)
        plans = await self._control.page(before, MOST_PLANS)
        return Page(
            template="plans",
            title="Plans",
            values={
                "plans": plans,
                "is_full": len(plans) == MOST_PLANS,
                "is_first": not before,
                "words": words_of,
            },
            has_forms=True,
        )

    async def plan(self, request: Request, _: Scope) -> Page:
        plan_id = number_of(request, "id", least=1, most=LARGEST_ID)
        if plan_id is None:
            raise InvalidRequest.of("id", "is required")
        plan, steps = await self._control.get(plan_id)
        first = number_of(request, "first", least=0, most=10**9) or 0
        counts = Counter(each.state for each in steps)
        return Page(
            template="plan",
            title=f"Plan {plan.id}",
            values={
                "plan": plan,
                "words": words_of(plan),
                "cordoned": len(cordoned_by(plan, steps)),
                "steps": steps[first : first + ROWS],
                "first": first,
                "step": ROWS,
                "counts": [(str(state), counts[state]) for state in StepState if counts[state]],
                "changes": changes_of(steps)[:MOST_CLUSTERS],
                "unmoved": plan.unfixed[:MOST_UNMOVED],
            },
            has_forms=True,
        )


def plan_in(fields: Mapping[str, str]) -> rebalance_pb2.CreatePlanRequest:
    """Read the form of a new plan. Raises InvalidRequest."""
    kind_name = fields.get("kind", PlanKind.DRAIN)
    if kind_name not in set(PlanKind):
        raise InvalidRequest.of("kind", f"must be one of {', '.join(PlanKind)}")
    return rebalance_pb2.CreatePlanRequest(
        kind=rebalance_pb2.PlanKind.Value(f"PLAN_KIND_{PlanKind(kind_name).name}"),
        clusters=dict.fromkeys(fields.get("clusters", "").replace(",", " ").split()),
        cluster_selector=pairs_in(fields.get("cluster_selector", ""), "clusterSelector"),
        selector=pairs_in(fields.get("selector", ""), "selector"),
        **_numbers_in(fields),
    )


def stop_in(fields: Mapping[str, str]) -> rebalance_pb2.StopPlanRequest:
    """Read the form that stops a plan. Raises InvalidRequest."""
    reason = fields.get("reason", "").strip()
    if not reason or len(reason) > MOST_REASON_CHARACTERS or not reason.isprintable():
        rule = f"is required: at most {MOST_REASON_CHARACTERS} printable characters"
        raise InvalidRequest.of("reason", rule)
    return rebalance_pb2.StopPlanRequest(id=plan_id_in(fields), reason=reason)


def words_of(plan: Plan) -> GainWords:
    return gain_words(plan.kind, plan.gain)


def changes_of(steps: Iterable[PlanStep]) -> list[ClusterChange]:
    """Cluster by cluster, what changes most first."""
    before, after = Counter[str](), Counter[str]()
    for step in steps:
        before.update({each.name: each.replicas for each in step.before})
        after.update({each.name: each.replicas for each in step.after})
    changes = [
        ClusterChange(name=name, before=before[name], after=after[name]) for name in before | after
    ]
    return sorted(changes, key=lambda each: (each.after - each.before, each.name))


def _numbers_in(fields: Mapping[str, str]) -> dict[str, int]:
    """Those that are given. Raises InvalidRequest."""
    found, numbers = Violations(), {}
    for name in NUMBERS:
        text = fields.get(name, "").strip()
        if not text:
            continue
        if text.isascii() and text.isdecimal() and int(text[:12]) <= LARGEST_NUMBER:
            numbers[name] = int(text)
        else:
            found.add(name, "must be a whole number")
    found.check()
    return numbers


def plan_id_in(fields: Mapping[str, str]) -> int:
    """Read the number of a plan. Raises InvalidRequest."""
    text = fields.get("id", "")
    if not (text.isdecimal() and len(text) < len(str(LARGEST_ID))):
        raise InvalidRequest.of("id", "must be the number of a plan")
    return int(text)
