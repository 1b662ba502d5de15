"""What fedsched's own values are called on pages.

Must not know any view. What others named goes through ``words``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from urllib.parse import urlencode

from markupsafe import Markup

from federation.codec.funnel import FunnelStep
from federation.model.cluster import Taint
from federation.model.errors import FederationError, InvalidRequest, Violation
from federation.model.placement import binding_key
from federation.model.resources import CPU, MEMORY
from federation.model.waiting import Wait
from federation.model.workload import ObjectReference
from federation.plans.plan import PlanState, StepState
from federation.services.agent_values import Placer
from federation.services.values import HeldReservation
from federation.web.ui.overview import HEALTH_WORDS, ClusterRow, Health, Meter, totals
from federation.web.ui.pool_picture import PoolPicture
from federation.web.ui.room_history import RoomCurve
from federation.web.ui.words import (
    binding_link,
    counted,
    measured,
    moment_text,
    part,
    percent,
    shown,
)

__all__ = [
    "again",
    "bound_text",
    "by_region",
    "cells_text",
    "current",
    "curve_text",
    "error_title",
    "error_violations",
    "fullness_text",
    "health_counts",
    "heat_cell",
    "held_meter",
    "key_link",
    "meter_text",
    "placer_text",
    "plan_state",
    "request_text",
    "resource_name",
    "selected",
    "step_text",
    "taint_text",
    "wait_text",
    "workload_text",
]

HOTTEST = 10
# Pages without a tab of their own, and the one they belong to.
PARTS_OF = {
    "/ui/cluster": "/ui/",
    "/ui/binding": "/ui/bindings",
    "/ui/decision": "/ui/bindings",
    "/ui/gang": "/ui/gangs",
    "/ui/plan": "/ui/plans",
    "/ui/preview": "/ui/ask",
}
_PLACERS = {
    Placer.NONE: "kube-scheduler alone chooses nodes",
    Placer.EXTENDER: "its extender helps kube-scheduler to choose nodes",
    Placer.BINDER: "its binder puts pods on nodes",
}
_BOUNDS = {
    "exact": "exact",
    "lower": "at least so many",
    "none": "about so many",
}


def current(address: str, path: str) -> Markup:
    """Whether a tab stands for the page at a path, or for what that one is a part of."""
    if address == path:
        return Markup(' aria-current="page"')
    return Markup(' aria-current="true"') if PARTS_OF.get(path) == address else Markup()


def selected(is_selected: bool) -> Markup:
    return Markup(" selected") if is_selected else Markup()


def again(query: Mapping[str, str], **changes: object) -> str:
    """The same question with other values."""
    return urlencode({**query, **changes})


def resource_name(resource: str) -> str:
    """Without the domain that it is named after: ``gpu`` of nvidia.com/gpu."""
    return resource.rpartition("/")[2]


def meter_text(meter: Meter) -> str:
    """What a bar shows, for who cannot see it."""
    named = (
        ("running", meter.running),
        ("promised", meter.promised),
        ("waiting", meter.waiting),
        ("free", meter.free),
    )
    parts = ", ".join(f"{measured(meter.resource, amount)} {word}" for word, amount in named)
    whole = measured(meter.resource, meter.allocatable)
    return f"{resource_name(meter.resource)}: {parts} of {whole}"


def heat(share: float) -> int:
    """Which of the colours, 0 to ``HOTTEST``."""
    return max(0, min(HOTTEST, int(share * HOTTEST)))


def heat_cell(row: ClusterRow) -> Markup:
    """A cluster on the map; there are a thousand of them, so that it is written in one go."""
    is_well = row.health is Health.READY
    look = f"h{heat(row.fullness)}{'' if is_well else ' unwell'}"
    said = f"{row.name}: {percent(row.fullness)}, {row.word}"
    sign = f"{min(999, 100 * row.fullness):.0f}" if is_well else row.sign
    link = f'<a class="{look}" href="/ui/cluster?name={part(row.name)}" title="{shown(said)}">'
    return Markup(f"<li>{link}{sign}</a></li>")  # noqa: S704 - what others named is escaped in it


def by_region(rows: Iterable[ClusterRow]) -> list[tuple[str, list[ClusterRow]]]:
    """Those without a region last."""
    ordered = sorted(rows, key=lambda row: (not row.region, row.region))
    return [(region, list(group)) for region, group in groupby(ordered, lambda row: row.region)]


def fullness_text(rows: Sequence[ClusterRow]) -> str:
    """``12 clusters, cpu 40 %, memory 31 %``: how full they are together."""
    shares = (
        f"{name} {percent(meter.share)}"
        for name in (CPU, MEMORY)
        if (meter := totals(rows, name)).allocatable
    )
    return ", ".join([counted(len(rows), "cluster"), *shares])


def health_counts(rows: Sequence[ClusterRow]) -> str:
    """``998 ready, 2 not seen``."""
    counts = Counter(row.health for row in rows)
    found = (
        f"{counts[each]:,} {HEALTH_WORDS[each][1]}" for each in reversed(Health) if counts[each]
    )
    return ", ".join(found) or "none"


def taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def curve_text(curve: RoomCurve) -> str:
    """What a curve shows, for who cannot see it."""
    said = (
        f"{measured(curve.resource, each.free)} {word} {moment_text(each.at)}"
        for word, each in (("at", curve.points[0]), ("least at", curve.least))
    )
    newest = measured(curve.resource, curve.newest.free)
    return f"{resource_name(curve.resource)} free: {', '.join(said)}; {newest} now"


def cells_text(pool: PoolPicture) -> str:
    """What the rectangles of a pool show, for who cannot see them."""
    parts = [
        f"{counted(each.nodes, 'node')} with {measured('cpu', each.cpu_millis)} free"
        for each in pool.rectangles[:12]
    ]
    more = len(pool.rectangles) - len(parts)
    return "; ".join([*parts, *([f"and {more} more kinds of nodes"] if more else [])])


def request_text(request: Mapping[str, int]) -> str:
    """``0.5 cores, 1Gi memory``."""
    texts = (
        measured(name, amount) if name == CPU else f"{measured(name, amount)} {name}"
        for name, amount in sorted(request.items())
    )
    return ", ".join(texts) or "nothing"


def key_link(key: str) -> Markup:
    """A binding by its key, leading to it."""
    namespace, slash, name = key.rpartition("/")
    return binding_link(namespace if slash else "", name)


def placer_text(placer: Placer) -> str:
    """Who chooses nodes for what is promised in a cluster."""
    return _PLACERS[placer]


def workload_text(workload: ObjectReference) -> str:
    """``Deployment shop/web``."""
    return f"{workload.kind} {binding_key(workload.namespace, workload.name)}"


def wait_text(wait: Wait) -> str:
    return f"{wait.state}: {wait.gate}" if wait.gate else str(wait.state)


def held_meter(held: HeldReservation) -> Meter:
    """What became of a reservation, as a bar of replicas."""
    return Meter(
        "replicas",
        allocatable=held.replicas,
        running=min(held.replicas, held.bound + held.finished),
        promised=max(0, held.outstanding - held.unbound),
        waiting=min(held.unbound, held.outstanding),
    )


def bound_text(bound: str) -> str:
    """What an estimate is worth."""
    return _BOUNDS.get(bound, bound)


def step_text(step: FunnelStep, of: int) -> str:
    """Which clusters are left after a step of a decision."""
    more = f" and {step.more:,} more" if step.more else ""
    share = f"{percent(step.left / max(1, of))} of the fleet"
    return f"{share}: {', '.join(step.names)}{more}" if step.left else share


def plan_state(state: PlanState | StepState) -> Markup:
    """As a tag, with a sign beside its colour."""
    signs = {"done": ("good", "●"), "failed": ("bad", "✕"), "stopped": ("bad", "✕")}
    look, sign = signs.get(state, ("fair", "…"))
    return Markup('<span class="tag {}">{} {}</span>').format(look, sign, state)


def error_title(error: FederationError) -> str:
    violations = error_violations(error)
    if not violations:
        return error.message
    return "This cannot be answered as it is asked:"


def error_violations(error: FederationError) -> Sequence[Violation]:
    return error.violations if isinstance(error, InvalidRequest) else ()
