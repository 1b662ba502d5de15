"""What Kubernetes says of objects of a kind: the fields that they may have, and those it adds.

Must not store anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lab.kubeapi.resources import (
    BY_KIND,
    CLUSTER_RESOURCE_BINDINGS,
    EVENTS,
    LEASES,
    NEW_EVENTS,
    NODES,
    PODS,
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


SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
NOT_A_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{SUBDOMAIN}')"
)
_NOT_EXECUTE_SECONDS: Final = 300


def with_defaults(resource: Resource, document: Document) -> Document:
    """A new object as it is stored."""
    if resource is PODS:
        return _pod(document)
    if resource is EVENTS:
        unset = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": None}
        return {**unset, "reportingComponent": "", "reportingInstance": "", **document}
    if resource is NEW_EVENTS:
        unset = {"deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}
        return {"deprecatedSource": {}, **unset, **document}
    if resource is NODES:
        blank = NODES.blank["status"]
        return {**document, "spec": document.get("spec", {}), "status": {**blank, **_of(document)}}
    return document


def check(resource: Resource, document: Document) -> None:
    """Raises Refused (422) with every fault of the object."""
    metadata = document["metadata"]
    name = metadata["name"]
    causes = []
    if resource is NEW_EVENTS and not _is_subdomain(metadata.get("generateName", "x").rstrip("-")):
        causes.append(_bad_name("metadata.generateName", metadata["generateName"]))
    if not _is_subdomain(name):
        causes.append(_bad_name("metadata.name", name))
    if resource is LEASES:
        causes += _lease_causes(document)
    elif resource is EVENTS:
        causes += _event_causes(document)
    elif resource is NEW_EVENTS:
        causes += _new_event_causes(document)
    if causes:
        # Both groups' events are one kind inside, and that is how errors name it.
        raise invalid_object(EVENTS if resource is NEW_EVENTS else resource, name, *causes)


def _of(document: Document) -> Document:
    status: Document = document.get("status", {})
    return status


def _is_subdomain(name: str) -> bool:
    return re.fullmatch(SUBDOMAIN, name) is not None


def _bad_name(field: str, name: str) -> Cause:
    return _bad_value(field, f'"{name}": {NOT_A_SUBDOMAIN}')


def _bad_value(field: str, what: str) -> Cause:
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {what}", field=field)


def _lease_causes(lease: Document) -> list[Cause]:
    seconds = lease.get("spec", {}).get("leaseDurationSeconds")
    if seconds is None or seconds > 0:
        return []
    return [_bad_value("spec.leaseDurationSeconds", f"{seconds}: must be greater than 0")]


def _event_causes(event: Document) -> list[Cause]:
    about = event.get("involvedObject", {}).get("namespace", "default")
    if about == event["metadata"]["namespace"]:
        return []
    return [_bad_value("involvedObject.namespace", f'"{about}": does not match event.namespace')]


def _new_event_causes(event: Document) -> list[Cause]:
    causes = []
    if "eventTime" not in event:
        causes.append(
            Cause(reason="FieldValueRequired", message="Required value", field="eventTime")
        )
    if event.get("type") not in ("Normal", "Warning"):
        causes.append(_bad_value("type", f'"": has invalid value: {event.get("type")}'))
    return causes


def _pod(document: Document) -> Document:
    given = document.get("spec", {})
    evictions = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _NOT_EXECUTE_SECONDS,
        }
        for key in ("not-ready", "unreachable")
    ]
    containers = [_container(each) for each in given.get("containers", [])]
    spec = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        **given,
        "containers": containers,
        "tolerations": [*given.get("tolerations", []), *evictions],
    }
    if "initContainers" in given:
        spec["initContainers"] = [_container(each) for each in given["initContainers"]]
    status = {"phase": "Pending", "qosClass": _quality(containers), **_of(document)}
    return {**document, "spec": spec, "status": status}


def _container(given: Document) -> Document:
    latest = ":" not in given.get("image", "") or given["image"].endswith(":latest")
    return {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        **given,
    }


def _quality(containers: list[dict[str, Any]]) -> str:
    resources = [each["resources"] for each in containers]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    if all(each.get("limits") and each.get("requests") == each["limits"] for each in resources):
        return "Guaranteed"
    return "Burstable"
