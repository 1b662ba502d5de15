"""Writes: create, replace, patch, delete, bind, each with the server's checks.

Must not know HTTP. May be used from any thread: a write holds the cluster's lock.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from lab.kubeapi.defaults import check, check_schema, check_unchanged, with_defaults
from lab.kubeapi.resources import NAMESPACES, NODES, PODS, Document, Resource
from lab.kubeapi.state import Cluster
from lab.kubeapi.statuses import (
    Cause,
    Refused,
    already_exists,
    bad_request,
    conflict,
    internal,
    invalid,
    invalid_object,
    modified,
    not_found,
    success,
)

# Lists that a strategic merge matches by a field instead of replacing.
_MERGE_KEYS: Final = {"conditions": "type", "containers": "name", "initContainers": "name"}
_TOPOLOGY: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class Writer:
    """Changes a cluster as requests do; documents handed out are as stored."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Asked before an object itself is changed, as validating webhooks are; they raise Refused.
        self.webhooks: list[Callable[[Resource, Document], None]] = []
        # What each field manager applied last.
        self._applied: dict[tuple[str, ...], Document] = {}

    def create(
        self, resource: Resource, namespace: str, document: Document, *, dry_run: bool = False
    ) -> Document:
        made = copy.deepcopy(document)
        metadata = made.setdefault("metadata", {})
        if resource.namespaced:
            metadata["namespace"] = namespace
        if "name" not in metadata:
            metadata["name"] = metadata.get("generateName", "") + uuid.uuid4().hex[:5]
        name = metadata["name"]
        with self._cluster.lock:
            if resource.namespaced and self._cluster.get(NAMESPACES, "", namespace) is None:
                raise not_found(NAMESPACES, namespace)
            check(resource, made)
            check_schema(resource, made, "")
            if self._cluster.get(resource, namespace, name) is not None:
                raise already_exists(resource, name)
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata["creationTimestamp"] = _now()
            if resource is PODS or resource.counts_generations:
                metadata["generation"] = 1
            if resource.counts_generations:
                made.pop("status", None)
            if resource is PODS:
                self._copy_topology(made)
            made = with_defaults(resource, made)
            made = {"kind": resource.kind, "apiVersion": resource.api_version, **made}
            if dry_run:
                return made
            return self._cluster.commit(resource, namespace, name, made)

    def replace(
        self, resource: Resource, namespace: str, name: str, document: Document, part: str = ""
    ) -> Document:
        """PUT, of the object or of its status."""
        with self._cluster.lock:
            current = self._found(resource, namespace, name)
            metadata = document["metadata"]
            given_version = metadata.get("resourceVersion")
            self._check_uid(resource, namespace, current, metadata)
            if given_version is None and resource.needs_version_to_update:
                raise _version_required(resource, name)
            _check_version(resource, name, current, given_version)
            wanted = {**current, "status": document.get("status", {})}
            if part != "status":
                wanted = copy.deepcopy(document)
                wanted["metadata"] = {**metadata, "uid": current["metadata"]["uid"]}
                if "status" in resource.subresources:
                    wanted["status"] = current.get("status", {})
            self._admit(resource, current, wanted, part)
            return self._cluster.commit(resource, namespace, name, wanted)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Document,
        *,
        part: str = "",
        strategic: bool = False,
    ) -> Document:
        """Merge patch, or strategic merge, of the object or of its status."""
        with self._cluster.lock:
            current = self._found(resource, namespace, name)
            _check_version(
                resource, name, current, patch.get("metadata", {}).get("resourceVersion")
            )
            merged: Document = _merged(current, patch, strategic=strategic)
            if "status" in resource.subresources:
                keep = current if part != "status" else merged
                take = merged if part != "status" else current
                merged = {**take, "status": keep.get("status", {})}
            if resource is PODS and _node(merged) != _node(current):
                raise _only_by_binding(name)
            check(resource, merged)
            if resource.counts_generations and merged == current:
                return current
            self._admit(resource, current, merged, part)
            return self._cluster.commit(resource, namespace, name, merged)

    def apply(
        self, resource: Resource, namespace: str, name: str, document: Document, manager: str
    ) -> Document:
        """Server-side apply with force: what the manager applied before and leaves out now goes."""
        if not manager:
            raise bad_request("PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        with self._cluster.lock:
            of_manager = (resource.api_version, resource.plural, namespace, name, manager)
            if self._cluster.get(resource, namespace, name) is None:
                done = self.create(resource, namespace, document)
            else:
                gone = _left_out(self._applied.get(of_manager, {}), document)
                patch = _merged(gone, document, strategic=False)
                done = self.patch(resource, namespace, name, patch)
            self._applied[of_manager] = copy.deepcopy(document)
            return done

    def delete(
        self, resource: Resource, namespace: str, name: str, options: Document | None = None
    ) -> Document:
        """Delete, or for a running pod: mark it, and leave the rest to its kubelet."""
        options = options or {}
        with self._cluster.lock:
            current = self._found(resource, namespace, name)
            metadata = current["metadata"]
            required = options.get("preconditions", {}).get("resourceVersion")
            if required not in (None, metadata["resourceVersion"]):
                why = (
                    f"the ResourceVersion in the precondition ({required}) does not match the "
                    f"ResourceVersion in record ({metadata['resourceVersion']}). "
                    "The object might have been modified"
                )
                details = {"name": name, "kind": resource.kind}
                raise conflict(details, resource.kind, why)
            if metadata.get("finalizers") and resource is not PODS:
                if "deletionTimestamp" not in metadata:
                    metadata["deletionTimestamp"] = _now()
                    metadata["generation"] = metadata.get("generation", 0) + 1
                return self._cluster.commit(resource, namespace, name, current)
            if resource is not PODS:
                self._cluster.commit(resource, namespace, name, None)
                details = {**resource.details(name), "uid": metadata["uid"]}
                return {**success(200), "details": details}
            grace_seconds = _grace_seconds(current, options)
            if grace_seconds and "deletionTimestamp" in metadata:
                return current
            if "deletionTimestamp" not in metadata:
                metadata["generation"] = metadata.get("generation", 1) + 1
            metadata["deletionTimestamp"] = _now(after_seconds=grace_seconds)
            metadata["deletionGracePeriodSeconds"] = grace_seconds
            marked = self._cluster.commit(resource, namespace, name, current)
            if grace_seconds:
                return marked
            return self._cluster.commit(resource, namespace, name, None)

    def bind(
        self, namespace: str, name: str, binding: Document, *, dry_run: bool = False
    ) -> Document:
        """The binding subresource: a Status, and the pod has its node."""
        metadata = binding.get("metadata", {})
        target = binding.get("target", {})
        if metadata.get("name") != name:
            raise bad_request("name in URL does not match name in Binding object")
        if target.get("kind", "") not in ("", "Node"):
            raise internal(
                f'target.kind: Unsupported value: "{target["kind"]}": '
                'supported values: "Node", "<empty>"'
            )
        if not target.get("name"):
            raise internal("target.name: Required value")
        with self._cluster.lock:
            pod = self._found(PODS, namespace, name)
            self._check_uid(PODS, namespace, pod, metadata)
            self._check_bindable(pod, metadata)
            if not dry_run:
                self._cluster.commit(PODS, namespace, name, self._bound(pod, binding))
        return success(201)

    def _found(self, resource: Resource, namespace: str, name: str) -> Document:
        found = self._cluster.get(resource, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def _admit(self, resource: Resource, current: Document, wanted: Document, part: str) -> None:
        """Check it, ask the webhooks, and count the generation of what keeps one."""
        check_schema(resource, wanted, part)
        if part == "status":
            return
        check_unchanged(resource, current, wanted)
        for webhook in self.webhooks:
            webhook(resource, wanted)
        if resource.counts_generations and wanted.get("spec") != current.get("spec"):
            metadata = wanted["metadata"]
            metadata["generation"] = current["metadata"].get("generation", 0) + 1

    def _check_uid(
        self, resource: Resource, namespace: str, current: Document, metadata: Document
    ) -> None:
        uid = current["metadata"]["uid"]
        if metadata.get("uid", uid) != uid:
            why = f"UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
            raise _storage_conflict(resource, namespace, current, why)

    def _check_bindable(self, pod: Document, metadata: Document) -> None:
        name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", version) != version:
            why = (
                f"ResourceVersion in precondition: {metadata['resourceVersion']}, "
                f"ResourceVersion in object meta: {version}"
            )
            raise _storage_conflict(PODS, pod["metadata"]["namespace"], pod, why)
        refusal = None
        if "deletionTimestamp" in pod["metadata"]:
            refusal = "is being deleted, cannot be assigned to a host"
        elif _node(pod):
            refusal = f'is already assigned to node "{_node(pod)}"'
        elif pod["spec"].get("schedulingGates"):
            refusal = "has non-empty .spec.schedulingGates"
        if refusal is not None:
            details = {"name": name, "kind": "pods/binding"}
            raise conflict(details, "pods/binding", f"pod {name} {refusal}")

    def _bound(self, pod: Document, binding: Document) -> Document:
        pod["spec"]["nodeName"] = binding["target"]["name"]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": _now(),
        }
        others = [
            each for each in pod["status"].get("conditions", ()) if each["type"] != "PodScheduled"
        ]
        pod["status"]["conditions"] = [*others, scheduled]
        annotations = binding.get("metadata", {}).get("annotations")
        if annotations:
            pod["metadata"]["annotations"] = {
                **pod["metadata"].get("annotations", {}),
                **annotations,
            }
        self._copy_topology(pod)
        return pod

    def _copy_topology(self, pod: Document) -> None:
        """A bound pod carries its node's zone and region."""
        node = self._cluster.get(NODES, "", _node(pod)) or {"metadata": {}}
        labels = node["metadata"].get("labels", {})
        copied = {key: labels[key] for key in _TOPOLOGY if key in labels}
        if copied:
            pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **copied}


def _check_version(
    resource: Resource, name: str, current: Document, given_version: str | None
) -> None:
    if given_version not in (None, "", current["metadata"]["resourceVersion"]):
        raise modified(resource, name)


def _version_required(resource: Resource, name: str) -> Refused:
    cause = Cause(
        reason="FieldValueInvalid",
        message="Invalid value: 0: must be specified for an update",
        field="metadata.resourceVersion",
    )
    return invalid(resource.qualified, name, resource.details(name), cause)


def _storage_conflict(resource: Resource, namespace: str, current: Document, why: str) -> Refused:
    name = current["metadata"]["name"]
    text = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/"
        f"{namespace}/{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {why}"
    )
    return conflict(resource.details(name), resource.qualified, text)


def _only_by_binding(name: str) -> Refused:
    message = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
    cause = Cause(reason="FieldValueForbidden", message=message, field="spec")
    return invalid_object(PODS, name, cause)


def _node(pod: Document) -> str:
    name: str = pod.get("spec", {}).get("nodeName", "")
    return name


def _grace_seconds(pod: Document, options: Document) -> int:
    """None is given to a pod that no kubelet runs."""
    if not _node(pod) or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    given: int | None = options.get("gracePeriodSeconds")
    return pod["spec"].get("terminationGracePeriodSeconds", 30) if given is None else given


def _merged(current: Any, patch: Any, *, strategic: bool, field: str = "") -> Any:
    """Merge patch: None removes; strategic: some lists merge by a key."""
    if isinstance(patch, dict):
        merged = dict(current) if isinstance(current, dict) else {}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = _merged(merged.get(key), value, strategic=strategic, field=key)
        return merged
    merge_key = _MERGE_KEYS.get(field) if strategic else None
    if merge_key is not None and isinstance(current, list):
        by_key = {item[merge_key]: item for item in current}
        for item in patch:
            by_key[item[merge_key]] = _merged(
                by_key.get(item[merge_key]), item, strategic=strategic
            )
        return list(by_key.values())
    return copy.deepcopy(patch)


def _left_out(before: Document, now: Document) -> Document:
    """A merge patch that removes what was there before and is not now."""
    patch: Document = {}
    for key, value in before.items():
        if key not in now:
            patch[key] = None
        elif isinstance(value, dict) and isinstance(now[key], dict):
            patch[key] = _left_out(value, now[key])
    return patch


def _now(*, after_seconds: int = 0) -> str:
    at = datetime.now(UTC) + timedelta(seconds=after_seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
