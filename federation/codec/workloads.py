"""Documents as bindings: resource bindings as they are, workloads through their policy.

Must not decide where anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from federation.codec import ranges
from federation.codec.binding_warnings import WITHOUT_REPLICAS, bounded
from federation.codec.documents import Document
from federation.codec.karmada_fields import ROOTS
from federation.codec.kubernetes_fields import check_workload_fields
from federation.codec.pod_warnings import pod_warnings
from federation.codec.pods import message_at, object_at, requirements_of_pod
from federation.codec.policies import (
    DEFAULT_NAMESPACE,
    Template,
    check_policy,
    is_cluster_wide,
    policy_for,
)
from federation.codec.violations import Violations
from federation.model.placement import binding_key
from federation.v1 import resource_pb2

_BINDING_VERSION, _BINDING_KINDS = ROOTS["ResourceBinding"]
_POLICY_VERSION, _POLICY_KINDS = ROOTS["PropagationPolicy"]
CLUSTER_KINDS: Final = ROOTS["Cluster"][1]
_MAX_NAMED: Final = 5
# Where pod templates are looked for: so many levels below spec, so many values of each.
_MAX_TEMPLATE_DEPTH: Final = 6
_MAX_VALUES: Final = 10_000

# Kinds that cannot be without a pod template. Others that have one count as workloads too.
_TEMPLATED: Final = frozenset(
    {
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "ReplicaSet"),
        ("v1", "ReplicationController"),
        ("batch/v1", "Job"),
    }
)
PLACEMENT_RULE: Final = "is required: write {} for every cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBindings:
    """The bindings that documents hold, and what people should know about them.

    ``warnings`` are about a binding, by ``namespace/name``; ``notes`` are about other documents,
    such as bindings that are not decided. ``documents`` are those without the latter. ``unplaced``
    are the paths of bindings that have no placement, and follow no other.
    """

    bindings: Sequence[resource_pb2.ResourceBinding]
    warnings: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    documents: Sequence[Document]
    unplaced: Sequence[str]

    def check_placed(self) -> None:
        """Raises InvalidRequest where a binding has no placement, and follows no other."""
        found = Violations()
        for path in self.unplaced:
            found.add(f"{path}.spec.placement", PLACEMENT_RULE)
        found.check()


@dataclass(slots=True, kw_only=True)
class _Sorted:
    """Documents by what they are."""

    bindings: list[resource_pb2.ResourceBinding] = field(default_factory=list)
    policies: list[resource_pb2.PropagationPolicy] = field(default_factory=list)
    workloads: list[Document] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Paths of bindings without a placement, which follow no other.
    unplaced: list[str] = field(default_factory=list)


def bindings_from_documents(
    documents: Iterable[Document],
) -> Sequence[resource_pb2.ResourceBinding]:
    """Return the bindings alone; raises as ``file_bindings`` does."""
    return file_bindings(documents).bindings


def file_bindings(documents: Iterable[Document]) -> FileBindings:
    """Return bindings, then one for each workload with the placement of the policy that selects it.

    A binding without a placement, and an object that is being deleted, are left out with a note.

    Raises InvalidRequest with every violation, each under ``Kind/name``; a workload that no
    policy selects is one, and so is a binding that is there twice.
    """
    found = Violations()
    given = _Sorted()
    for position, document in enumerate(documents, start=1):
        _sort(document, f"document {position}", given, found)
    # Before a policy can be read, nothing can be said about what it selects.
    _check_policies_distinct(given.policies, found)
    found.check()
    bindings, warnings = [*given.bindings], {}
    for workload in given.workloads:
        binding = _binding(workload, given.policies, found)
        if binding is not None:
            bindings.append(binding)
            key = binding_key(binding.metadata.namespace, binding.metadata.name)
            warnings[key] = bounded(_warnings_of_workload(workload))
    _check_distinct(bindings, found)
    found.check()
    held = FileBindings(
        bindings=bindings,
        warnings={key: each for key, each in warnings.items() if each},
        notes=[*given.notes, *_policy_notes(given.policies)],
        documents=given.documents,
        unplaced=given.unplaced,
    )
    if not bindings:
        # One alone is a mistake of its author, and no part of an export.
        held.check_placed()
    return held


def is_policy(document: Document) -> bool:
    """Whether it says where others run."""
    return document.get("kind") in _POLICY_KINDS


def policies_from_documents(documents: Iterable[Document]) -> list[resource_pb2.PropagationPolicy]:
    """Raises InvalidRequest with every violation; what is no policy is one."""
    found, given = Violations(), _Sorted()
    for position, document in enumerate(documents, start=1):
        path = f"document {position}"
        if not is_policy(document):
            found.add(shown_name(document, path), "is not a PropagationPolicy")
            continue
        _sort(document, path, given, found)
    for policy in given.policies:
        if policy.HasField("spec") and not policy.spec.HasField("placement"):
            found.add(f"{_shown_policy(policy)}.spec.placement", PLACEMENT_RULE)
    _check_policies_distinct(given.policies, found)
    found.check()
    return given.policies


def shown_name(document: Document, otherwise: str) -> str:
    """How a document is called in messages: Deployment/web, or where it stands."""
    kind, metadata = document.get("kind"), document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"{kind}/{name}" if isinstance(kind, str) and isinstance(name, str) else otherwise


def is_being_deleted(document: Document) -> bool:
    """Whether an API server has been asked to delete the object."""
    metadata = document.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("deletionTimestamp") is not None


def _sort(document: Document, otherwise: str, given: _Sorted, found: Violations) -> None:
    kind, version = document.get("kind"), document.get("apiVersion")
    path = shown_name(document, otherwise)
    if is_being_deleted(document) and kind not in CLUSTER_KINDS:
        given.notes.append(f"{path} is being deleted, and left out")
        return
    given.documents.append(document)
    if not (isinstance(kind, str) and kind):
        found.add(f"{path}.kind", "is required")
    elif kind in _BINDING_KINDS and version in (None, _BINDING_VERSION):
        _sort_binding(document, path, given, found)
    elif kind in _POLICY_KINDS and version in (None, _POLICY_VERSION):
        policy = message_at(document, resource_pb2.PropagationPolicy, path, found)
        if policy.HasField("spec"):
            check_policy(policy, path, found)
        given.policies.append(policy)
    elif kind in (*_BINDING_KINDS, *_POLICY_KINDS):
        expected = _BINDING_VERSION if kind in _BINDING_KINDS else _POLICY_VERSION
        found.add(f"{path}.apiVersion", f"must be {expected}, not {version!r}")
    elif kind in CLUSTER_KINDS:
        found.add(path, "is a cluster, which cannot be scheduled")
    else:
        given.workloads.append(document)


def _sort_binding(document: Document, path: str, given: _Sorted, found: Violations) -> None:
    before = len(found)
    message = message_at(document, resource_pb2.ResourceBinding, path, found)
    if len(found) > before or message.spec.HasField("placement"):
        given.bindings.append(message)
        return
    given.documents.pop()
    followed = _followed(document)
    if followed:
        given.notes.append(f"{path} follows {followed} (spec.requiredBy), and is not decided")
        return
    given.unplaced.append(path)
    given.notes.append(f"{path} has no spec.placement, and is not decided")


def _followed(document: Document) -> str:
    """The bindings that need this one, "" where there is none."""
    snapshots = _mapping(document.get("spec")).get("requiredBy")
    names = [
        binding_key(str(each.get("namespace") or ""), str(each.get("name") or ""))
        for each in map(_mapping, snapshots if isinstance(snapshots, list) else ())
    ]
    rest = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{rest}"


def _policy_notes(policies: Iterable[resource_pb2.PropagationPolicy]) -> Iterator[str]:
    for policy in policies:
        if policy.HasField("spec") and not policy.spec.HasField("placement"):
            yield f"{_shown_policy(policy)} has no spec.placement: every cluster is allowed"


def _shown_policy(policy: resource_pb2.PropagationPolicy) -> str:
    return f"{policy.kind or _POLICY_KINDS[0]}/{policy.metadata.name}"


def _binding(
    document: Document, policies: list[resource_pb2.PropagationPolicy], found: Violations
) -> resource_pb2.ResourceBinding | None:
    path = shown_name(document, "workload")
    before = len(found)
    check_workload_fields(document, path, found)
    metadata = object_at(document.get("metadata"), f"{path}.metadata", found)
    kept = {name: metadata.get(name) for name in ("name", "namespace", "labels", "uid")}
    meta = message_at(kept, resource_pb2.ObjectMeta, f"{path}.metadata", found)
    types = {name: document.get(name) for name in ("apiVersion", "kind")}
    reference = message_at(types, resource_pb2.ObjectReference, path, found)
    if len(found) == before:
        ranges.required(meta.name, f"{path}.metadata.name", found)
        ranges.required(reference.api_version, f"{path}.apiVersion", found)
    if len(found) > before:
        return None
    template = Template(
        api_version=reference.api_version,
        kind=reference.kind,
        namespace=meta.namespace or DEFAULT_NAMESPACE,
        name=meta.name,
        labels=dict(meta.labels),
    )
    policy = policy_for(template, policies)
    if policy is None:
        found.add(path, "no PropagationPolicy among the files selects it")
        return None
    return _bound(document, template, meta.uid, policy, found)


def _bound(
    document: Document,
    template: Template,
    uid: str,
    policy: resource_pb2.PropagationPolicy,
    found: Violations,
) -> resource_pb2.ResourceBinding:
    """The binding under its usual name, such as web-deployment."""
    replicas, requirements = _demand(document, template, found)
    name = f"{template.name}-{template.kind}".lower().replace(":", ".")
    binding = resource_pb2.ResourceBinding(
        api_version=_BINDING_VERSION,
        kind="ResourceBinding",
        metadata=resource_pb2.ObjectMeta(
            name=name, namespace=template.namespace, labels=template.labels
        ),
        spec=resource_pb2.ResourceBindingSpec(
            resource=resource_pb2.ObjectReference(
                api_version=template.api_version,
                kind=template.kind,
                namespace=template.namespace,
                name=template.name,
                uid=uid,
            ),
            replicas=replicas,
            replica_requirements=requirements,
            placement=policy.spec.placement,
            scheduler_name=policy.spec.scheduler_name,
        ),
    )
    if policy.spec.HasField("suspension"):
        binding.spec.suspension.CopyFrom(policy.spec.suspension)
    return binding


def _demand(
    document: Document, template: Template, found: Violations
) -> tuple[int, resource_pb2.ReplicaRequirements | None]:
    """How many replicas, and what each asks for; (0, None) for what runs no counted pods."""
    path = template.shown
    spec = object_at(document.get("spec"), f"{path}.spec", found)
    if template.kind in WITHOUT_REPLICAS:
        return 0, None
    if (template.api_version, template.kind) == ("v1", "Pod"):
        return 1, requirements_of_pod(spec, template.namespace, f"{path}.spec", found)
    if not isinstance(spec.get("template"), Mapping):
        if "workloadRef" in spec:
            rule = "is not followed: give the pod template in spec.template"
            found.add(f"{path}.spec.workloadRef", rule)
        elif (template.api_version, template.kind) in _TEMPLATED:
            found.add(f"{path}.spec.template", "is required")
        return 0, None
    here = f"{path}.spec.template.spec"
    pod = object_at(spec["template"].get("spec"), here, found)
    requirements = requirements_of_pod(pod, template.namespace, here, found)
    if template.kind == "Job":
        return _pods_of_job(spec, path, found), requirements
    return _replicas(spec.get("replicas"), f"{path}.spec.replicas", found), requirements


def _warnings_of_workload(document: Document) -> Iterator[str]:
    """Yield the warnings about a workload, of which any part may be wrong still."""
    kind, spec = document["kind"], _mapping(document.get("spec"))
    if kind in WITHOUT_REPLICAS:
        return
    if (document.get("apiVersion"), kind) == ("v1", "Pod"):
        yield from pod_warnings(spec, "spec")
        return
    template = _mapping(spec.get("template"))
    claims = ["volumeClaimTemplates"] if spec.get("volumeClaimTemplates") else []
    yield from pod_warnings(_mapping(template.get("spec")), "spec.template.spec", claims)
    if "template" not in spec and spec.get("replicas") is not None:
        yield (
            "spec.replicas is not read, because there is no pod template at spec.template: "
            f"the {kind} goes whole to each cluster"
        )
    templates = list(islice(_other_templates(spec), _MAX_NAMED))
    if templates:
        yield f"pods of {', '.join(templates)} are not counted: only spec.template is read"


def _other_templates(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield where pod templates stand beside ``spec.template``, in a workload of any kind."""
    level: list[tuple[str, object]] = [
        (f"spec.{name}", content) for name, content in spec.items() if name != "template"
    ]
    for _ in range(_MAX_TEMPLATE_DEPTH):
        below: list[tuple[str, object]] = []
        for path, value in level:
            if _holds_containers(value):
                yield path
            elif isinstance(value, Mapping):
                below += [(f"{path}.{name}", content) for name, content in value.items()]
            elif isinstance(value, list):
                below += [(f"{path}[{number}]", content) for number, content in enumerate(value)]
        level = below[:_MAX_VALUES]


def _holds_containers(value: object) -> bool:
    return isinstance(_mapping(_mapping(value).get("spec")).get("containers"), list)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pods_of_job(spec: Mapping[str, Any], path: str, found: Violations) -> int:
    """How many run at once: a Job does not start more than it has completions for."""
    parallelism = _replicas(spec.get("parallelism"), f"{path}.spec.parallelism", found)
    if spec.get("completions") is None:
        return parallelism
    return min(parallelism, _replicas(spec["completions"], f"{path}.spec.completions", found))


def _replicas(value: Any, path: str, found: Violations) -> int:
    """A count of replicas; Kubernetes' default is one."""
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int):
        found.add(path, f"must be a whole number, not {value!r}")
        return 0
    return max(0, min(ranges.replicas(value, path, found), ranges.MAX_REPLICAS))


def _check_policies_distinct(
    policies: list[resource_pb2.PropagationPolicy], found: Violations
) -> None:
    """Of two policies of one name it would be chance which one holds."""
    seen: set[tuple[str, str, str]] = set()
    for policy in policies:
        kind, meta = policy.kind or _POLICY_KINDS[0], policy.metadata
        namespace = "" if is_cluster_wide(policy) else meta.namespace or DEFAULT_NAMESPACE
        key = (kind, namespace, meta.name)
        if key in seen and meta.name:
            found.add(f"{kind}/{meta.name}", "is there twice")
        seen.add(key)


def _check_distinct(bindings: list[resource_pb2.ResourceBinding], found: Violations) -> None:
    seen: set[tuple[str, str]] = set()
    for binding in bindings:
        key = (binding.metadata.namespace, binding.metadata.name)
        if key in seen and binding.metadata.name:
            found.add(f"ResourceBinding/{binding.metadata.name}", "is there twice")
        seen.add(key)
