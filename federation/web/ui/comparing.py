"""Two placements of one workload side by side: where it would go by each, cluster by cluster.

Must not commit anything: what is shown first is committed by ``asking``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from federation.codec.documents import Document, read_documents
from federation.codec.workloads import is_policy, policies_from_documents
from federation.model.access import Scope
from federation.model.errors import FederationError, InvalidRequest
from federation.model.placement import Binding
from federation.services.threads import DECODING, DRAWING
from federation.services.values import Previewed
from federation.v1 import resource_pb2, scheduling_pb2
from federation.web.ui.asking import (
    EXAMPLE,
    PASTED,
    Pasted,
    pasted_binding,
    read_binding,
    refuse_parts_of_fleet,
    refuse_unseen,
)
from federation.web.ui.funnel import DecisionPicture, decision_picture
from federation.web.ui.requests import text_of
from federation.web.ui.use_cases import UseCases
from federation.web.ui.views import ROWS, Page

OTHER: Final = "the other placement"
# Beside the one of ``asking``: as few clusters as have room, in place of all by their room.
OTHER_EXAMPLE: Final = """\
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web-together, namespace: default}
spec:
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment, name: web}
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Aggregated
"""


class Side(NamedTuple):
    """One of the two: what was previewed, how it is drawn, and what the text is warned of."""

    title: str
    preview: Previewed
    picture: DecisionPicture
    warnings: Sequence[str]


class ComparedCluster(NamedTuple):
    """What one cluster would get by each, and why."""

    name: str
    first: int
    second: int
    first_why: str
    second_why: str

    @property
    def change(self) -> int:
        return self.second - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementComparison:
    """Both sides; ``rows`` are the clusters that get something, those that differ most first."""

    sides: tuple[Side, Side]
    rows: tuple[ComparedCluster, ...]
    most: int
    same: bool


class Comparing:
    """The page that compares; raises what previews raise."""

    def __init__(self, use_cases: UseCases) -> None:
        self._previews = use_cases.services.previews

    async def form(self, request: Request, _: Scope) -> Page:
        if text_of(request, "example"):
            return _page(text=EXAMPLE, other=OTHER_EXAMPLE)
        return _page()

    async def compare(self, fields: Mapping[str, str], scope: Scope) -> Page:
        """Where the workload in ``text`` would go now, by its own placement and by ``other``.

        Raises PermissionRefused.
        """
        refuse_parts_of_fleet(scope)
        text, other = fields.get("text", ""), fields.get("other", "")
        try:
            pair = await DECODING.run(_bindings_in, text, other)
            for binding, _ in pair:
                refuse_unseen(binding, scope)
            previews = [
                await self._previews.preview(binding, adopt=False, wait=True) for binding, _ in pair
            ]
        except FederationError as refused:
            return _page(text=text, other=other, error=refused, status=422)
        warnings = [each for _, each in pair]
        comparison = await DRAWING.run(_compared, previews, warnings, scope)
        return _page(text=text, other=other, comparison=comparison)


def _page(*, status: int = 200, **values: Any) -> Page:
    nothing = {"text": "", "other": "", "error": None, "comparison": None}
    return Page(
        template="compare",
        title="Compare",
        values={**nothing, **values, "step": ROWS},
        is_live=False,
        has_forms=True,
        status=status,
    )


def _bindings_in(text: str, other: str) -> list[tuple[Binding, Sequence[str]]]:
    """Both bindings, and the warnings about each. Raises InvalidRequest."""
    own, others = read_documents(text, source=PASTED), read_documents(other, source=OTHER)
    first = pasted_binding(own, PASTED)
    return [read_binding(each) for each in (first, _other_binding(own, others, first))]


def _other_binding(own: Sequence[Document], others: Sequence[Document], first: Pasted) -> Pasted:
    """The same with the other placement, unless the other text has a workload of its own."""
    if not others:
        raise InvalidRequest.of(OTHER, "is required: a PropagationPolicy to compare with")
    if not all(map(is_policy, others)):
        return pasted_binding(others, OTHER)
    workloads = [each for each in own if not is_policy(each)]
    if any(each.get("kind") == first.message.DESCRIPTOR.name for each in workloads):
        policies = policies_from_documents(others)
        if len(policies) != 1:
            raise InvalidRequest.of(OTHER, f"must hold one policy, not {len(policies)}")
        changed = resource_pb2.ResourceBinding.FromString(first.message.SerializeToString())
        changed.spec.placement.CopyFrom(policies[0].spec.placement)
        return replace(first, message=changed)
    return pasted_binding([*workloads, *others], OTHER)


def _compared(
    previews: Sequence[Previewed], warnings: Sequence[Sequence[str]], scope: Scope
) -> PlacementComparison:
    """Of a large fleet that takes too long for an event loop."""
    first, second = (
        Side(title, preview, decision_picture(preview.record, scope), about)
        for title, preview, about in zip(("First", "Other"), previews, warnings, strict=True)
    )
    rows = tuple(sorted(_rows(first.picture, second.picture), key=_difference))
    return PlacementComparison(
        sides=(first, second),
        rows=rows,
        most=max(first.picture.most_replicas, second.picture.most_replicas, 1),
        same=not any(row.change for row in rows),
    )


def _rows(first: DecisionPicture, second: DecisionPicture) -> Iterable[ComparedCluster]:
    one = {each.name: each for each in first.clusters}
    two = {each.name: each for each in second.clusters}
    nothing = scheduling_pb2.ClusterTrace()
    for name in one | two:
        a, b = one.get(name, nothing), two.get(name, nothing)
        if a.replicas or b.replicas:
            yield ComparedCluster(name, a.replicas, b.replicas, first.why(a), second.why(b))


def _difference(row: ComparedCluster) -> tuple[int, int, str]:
    return -abs(row.change), -row.first, row.name
