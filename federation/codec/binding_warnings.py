"""Warnings about a binding as it was sent: each names a field, and what does not come of it.

Must not refuse anything, nor read pod templates: a binding has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from federation.codec.amount_warnings import amount_warnings
from federation.codec.placements import read_placement
from federation.codec.unread import unread_in_message, warning_of
from federation.codec.violations import Violations
from federation.model.placement import DivisionPreference, SchedulingType
from federation.v1 import resource_pb2

MAX_WARNINGS: Final = 10
# Kinds without a number of replicas: one pod a node, or a template of a template.
WITHOUT_REPLICAS: Final = frozenset({"DaemonSet", "CronJob"})


def warnings_of_binding(message: resource_pb2.ResourceBinding) -> Sequence[str]:
    """Return all warnings, of which the first is about fields that nothing reads."""
    unread = warning_of(unread_in_message(message))
    return bounded([*filter(None, [unread]), *request_warnings(message)])


def request_warnings(message: resource_pb2.ResourceBinding) -> Iterator[str]:
    """Yield the warnings about what the binding asks for."""
    spec, version = message.spec, message.metadata.resource_version
    if is_foreign_version(version):
        yield f"metadata.resourceVersion {version} is ignored: it is of another API"
    scheduling = spec.placement.replica_scheduling
    if (
        spec.resource.kind in WITHOUT_REPLICAS
        and spec.placement.HasField("replica_scheduling")
        and scheduling.replica_scheduling_type != SchedulingType.DUPLICATED
        and not spec.replicas
    ):
        yield (
            "spec.placement.replicaScheduling has no effect: "
            f"a {spec.resource.kind} is not divided, it goes whole to each cluster"
        )
    yield from _constraint_warnings(spec)
    request = spec.replica_requirements.resource_request
    yield from amount_warnings(request, "spec.replicaRequirements.resourceRequest")
    for position, component in enumerate(spec.components):
        path = f"spec.components[{position}].replicaRequirements.resourceRequest"
        yield from amount_warnings(component.replica_requirements.resource_request, path)


def _constraint_warnings(spec: resource_pb2.ResourceBindingSpec) -> Iterator[str]:
    """Yield the spread constraints that static weights pass over, as Karmada does."""
    if not spec.placement.spread_constraints:
        return
    violations = Violations()
    placement = read_placement(spec.placement, "spec.placement", violations)
    scheduling = placement.replica_scheduling
    is_static = (
        scheduling.type is SchedulingType.DIVIDED
        and scheduling.preference is DivisionPreference.WEIGHTED
        and not scheduling.dynamic
    )
    if violations or not is_static or not spec.replicas or spec.components:
        return
    for position, constraint in enumerate(placement.spread_constraints):
        limit = "" if constraint.max_groups is None else f" to {constraint.max_groups}"
        yield (
            f"spec.placement.spreadConstraints[{position}] ({constraint.by} "
            f"{constraint.min_groups}{limit}) has no effect: static weights choose the clusters"
        )


def is_foreign_version(text: str) -> bool:
    """Whether a resourceVersion is of an object that Kubernetes' API has, and not one of ours."""
    return text.isascii() and text.isdigit()


def bounded(warnings: Iterable[str]) -> list[str]:
    """Return the first warnings, each once, with the number of the rest."""
    distinct = iter(dict.fromkeys(warnings))
    first = list(islice(distinct, MAX_WARNINGS))
    rest = sum(1 for _ in distinct)
    return [*first, f"and {rest} more warnings like these"] if rest else first
