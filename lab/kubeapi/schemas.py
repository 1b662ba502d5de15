"""What Karmada's definitions of bindings refuse, and what may not change in a Job.

Only the rules that written objects have broken; must not be taken for the whole schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lab.kubeapi.resources import (
    BY_KIND,
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    Document,
    Resource,
)
from lab.kubeapi.statuses import Cause, invalid_object

JOBS: Final = BY_KIND["batch/v1", "Job"]
# Fields that have to be there, by where they are; [] stands for every item of a list.
_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "spec": ("resource",),
    "spec.resource": ("apiVersion", "kind", "name"),
    "spec.clusters[]": ("name",),
    "spec.gracefulEvictionTasks[]": ("fromCluster", "producer", "reason"),
    "status.aggregatedStatus[]": ("clusterName",),
    "status.conditions[]": ("lastTransitionTime", "message", "reason", "status", "type"),
}
_TIMES: Final = ("spec.rescheduleTriggeredAt", "status.lastScheduledTime")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def check_schema(resource: Resource, document: Document, part: str) -> None:
    """Raises Refused (422) with every fault of a binding's spec, or of its status."""
    if resource not in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS):
        return
    written = "status" if part == "status" else "spec"
    causes = [*_missing(document, written), *_bad_times(document, written)]
    if causes:
        raise invalid_object(resource, document["metadata"]["name"], *causes)


def check_unchanged(resource: Resource, current: Document, wanted: Document) -> None:
    """Raises Refused (422) where completions of a Job would become others."""
    before, now = current.get("spec", {}), wanted.get("spec", {})
    is_elastic = now.get("completionMode") == "Indexed"
    if resource is JOBS and not is_elastic and before.get("completions") != now.get("completions"):
        message = f"Invalid value: {now.get('completions')}: field is immutable"
        cause = Cause(reason="FieldValueInvalid", message=message, field="spec.completions")
        raise invalid_object(resource, current["metadata"]["name"], cause)


def _missing(document: Document, written: str) -> Iterator[Cause]:
    for path, fields in _REQUIRED.items():
        if path.partition(".")[0] != written:
            continue
        for where, value in _found(document, path):
            for field in fields:
                if value.get(field) is None:
                    yield Cause(
                        reason="FieldValueRequired",
                        message="Required value",
                        field=f"{where}.{field}",
                    )


def _bad_times(document: Document, written: str) -> Iterator[Cause]:
    for path in _TIMES:
        part, _, field = path.partition(".")
        value = (document.get(part) or {}).get(field) if part == written else None
        if value is not None and not _TIME.fullmatch(str(value)):
            message = f'Invalid value: "{value}": {path} in body must be of type date-time'
            yield Cause(reason="FieldValueInvalid", message=message, field=path)


def _found(document: Document, path: str) -> Iterator[tuple[str, Any]]:
    """The objects at a path, each with where it is."""
    head, _, field = path.rpartition(".")
    name = field.removesuffix("[]")
    parent = document.get(head) or {} if head else document
    value = parent.get(name)
    where = f"{head}.{name}" if head else name
    if field.endswith("[]"):
        for position, item in enumerate(value or ()):
            yield f"{where}[{position}]", item
    elif value is not None:
        yield where, value
