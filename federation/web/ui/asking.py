"""What people ask on the page: how many of a shape fit, and where a workload would go.

Must not commit anything but what a preview showed, for who has signed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from federation.codec.binding_warnings import warnings_of_binding
from federation.codec.bindings import binding_from_message
from federation.codec.counts import refuse_too_many
from federation.codec.documents import Document, read_documents
from federation.codec.estimates import bound_word, source_word
from federation.codec.requirements import read_requirements
from federation.codec.strict import message_from_document
from federation.codec.violations import Violations
from federation.codec.workloads import file_bindings
from federation.model.access import Scope
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    NotFound,
    PermissionRefused,
)
from federation.model.estimate import EstimateOptions
from federation.model.placement import Binding
from federation.model.workload import ReplicaRequirements
from federation.services.threads import DECODING, DRAWING
from federation.services.values import EstimateAnswer, Previewed
from federation.v1 import resource_pb2
from federation.web.ui.funnel import decision_picture
from federation.web.ui.requests import number_of, pairs_in, text_of
from federation.web.ui.use_cases import UseCases
from federation.web.ui.views import ROWS, Page

PASTED: Final = "the text"
FIELDS: Final = ("cpu", "memory", "others", "nodes")
# To begin with, for who has nothing to paste.
EXAMPLE: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 5
  template:
    spec:
      containers:
      - name: web
        resources: {requests: {cpu: 500m, memory: 1Gi}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: default}
spec:
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment, name: web}
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {dynamicWeight: AvailableReplicas}
"""


class Fitting(NamedTuple):
    """How many fit in one cluster, None where that is unknown."""

    cluster: str
    replicas: int | None
    source: str
    bound: str
    age_seconds: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How many fit in all clusters, the most first."""

    rows: tuple[Fitting, ...]
    replicas: int
    clusters: int
    unknown: int

    @property
    def most(self) -> int:
        return max((each.replicas or 0 for each in self.rows), default=0)


class Asking:
    """The pages with forms; all raise what the use cases raise."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases

    async def ask(self, request: Request, scope: Scope) -> Page:
        """The form, and the answer where something is asked."""
        asked = {name: text_of(request, name) for name in FIELDS}
        first = number_of(request, "first", least=0, most=10**9) or 0
        fit, error = None, None
        if any(asked.values()):
            try:
                shape = shape_of(asked)
                answer = await self._use_cases.services.availability.estimate(
                    [shape], self._seen(scope), EstimateOptions()
                )
                fit = await DRAWING.run(fit_of, answer)
            except InvalidRequest as refused:
                error = refused
        text = EXAMPLE if text_of(request, "example") else ""
        return self._page(asked=asked, fit=fit, error=error, first=first, text=text)

    async def preview(self, fields: Mapping[str, str], scope: Scope) -> Page:
        """Where the workload in ``text`` would go now. Raises PermissionRefused."""
        refuse_parts_of_fleet(scope)
        text = fields.get("text", "")
        try:
            binding, warnings = await DECODING.run(binding_in, text)
            refuse_unseen(binding, scope)
            previewed = await self._use_cases.services.previews.preview(
                binding, adopt=False, wait=True
            )
        except FederationError as refused:
            return self._page(text=text, error=refused, status=422)
        return await self._previewed(text, previewed, warnings, scope)

    def _seen(self, scope: Scope) -> Sequence[str]:
        """The clusters that are meant, none: the whole fleet. Raises NotFound."""
        if scope.sees_all_clusters:
            return ()
        names = self._use_cases.services.availability.cluster_names()
        seen = tuple(filter(scope.sees_cluster, names))
        if not seen:
            raise NotFound("There is no cluster that your token may see.")
        return seen

    async def _previewed(
        self, text: str, previewed: Previewed, warnings: Sequence[str], scope: Scope
    ) -> Page:
        picture = await DRAWING.run(decision_picture, previewed.record, scope)
        return self._page(text=text, preview=previewed, picture=picture, warnings=warnings)

    def _page(self, *, status: int = 200, **values: Any) -> Page:
        nothing = {
            **dict.fromkeys(("fit", "error", "preview", "picture")),
            "asked": dict.fromkeys(FIELDS, ""),
            "text": "",
            "warnings": (),
            "first": 0,
        }
        return Page(
            template="ask",
            title="Ask",
            values={**nothing, **values, "step": ROWS},
            is_live=False,
            has_forms=True,
            status=status,
        )


def shape_of(asked: Mapping[str, str]) -> ReplicaRequirements:
    """What one replica asks for. Raises InvalidRequest."""
    request = {name: asked[name] for name in ("cpu", "memory") if asked[name]}
    request |= pairs_in(asked["others"], "others")
    selector = pairs_in(asked["nodes"], "nodes")
    if not request:
        raise InvalidRequest.of("cpu", "say how much of anything one replica asks for")
    document: dict[str, Any] = {"resourceRequest": request}
    if selector:
        document["nodeClaim"] = {"nodeSelector": selector}
    message = message_from_document(document, resource_pb2.ReplicaRequirements)
    found = Violations()
    requirements = read_requirements(message, "", found)
    found.check()
    return requirements


def fit_of(answer: EstimateAnswer) -> Fit:
    """Of the one shape that was asked about; safe in any thread."""
    (estimates,) = answer.estimates
    unknown_c = estimates.unknown_c.tolist()
    columns = zip(
        answer.names,
        estimates.replicas_c.tolist(),
        estimates.source_c.tolist(),
        estimates.bound_c.tolist(),
        answer.age_seconds_c.tolist(),
        answer.sequence_c.tolist(),
        strict=True,
    )
    rows = [
        Fitting(
            cluster=name,
            replicas=None if unknown_c[position] else replicas,
            source=source_word(source),
            bound=bound_word(bound),
            age_seconds=age if sequence else None,
            note=str(estimates.reasons.get(position, "")),
        )
        for position, (name, replicas, source, bound, age, sequence) in enumerate(columns)
    ]
    rows.sort(key=lambda each: (each.replicas is None, -(each.replicas or 0), each.cluster))
    return Fit(
        rows=tuple(rows),
        replicas=sum(each.replicas or 0 for each in rows),
        clusters=sum(1 for each in rows if each.replicas),
        unknown=sum(unknown_c),
    )


def refuse_parts_of_fleet(scope: Scope) -> None:
    """Raises PermissionRefused."""
    if not scope.sees_all_clusters:
        raise PermissionRefused("What is scheduled may get any cluster: your token sees some.")


def refuse_unseen(binding: Binding, scope: Scope) -> None:
    """Raises InvalidRequest."""
    if not scope.sees_namespace(binding.namespace):
        allowed = ", ".join(scope.namespaces)
        raise InvalidRequest.of("metadata.namespace", f"must be one of {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """The one binding that a text means, and the warnings about the text."""

    message: resource_pb2.ResourceBinding
    warnings: Sequence[str]


def binding_in(text: str) -> tuple[Binding, Sequence[str]]:
    """The one binding that a text means, and all warnings about it. Raises InvalidRequest."""
    return read_binding(pasted_binding(read_documents(text, source=PASTED), PASTED))


def pasted_binding(documents: Iterable[Document], source: str) -> Pasted:
    """The one binding that documents mean. Raises InvalidRequest."""
    held = file_bindings(documents)
    if len(held.bindings) != 1:
        rule = (
            "must hold one workload with its policy, or one ResourceBinding, "
            f"not {len(held.bindings)}"
        )
        raise InvalidRequest.of(source, rule)
    about = (each for warnings in held.warnings.values() for each in warnings)
    return Pasted(message=held.bindings[0], warnings=[*held.notes, *about])


def read_binding(pasted: Pasted) -> tuple[Binding, Sequence[str]]:
    """The binding, and all warnings about it. Raises InvalidRequest."""
    found = Violations()
    refuse_too_many(pasted.message, "", found)
    found.check()
    binding = binding_from_message(pasted.message)
    return binding, [*warnings_of_binding(pasted.message), *pasted.warnings]
