"""Resource bindings, from messages and back.

Must not decide anything about a binding, nor know whether it is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from federation.codec import ranges, texts
from federation.codec.binding_warnings import is_foreign_version
from federation.codec.placements import placement_to_message, read_placement
from federation.codec.requirements import (
    component_messages,
    read_components,
    read_requirements,
    requirements_to_message,
)
from federation.codec.rules import check_rules
from federation.codec.strict import check_type_meta, message_from_document, refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations, joined
from federation.model.errors import InvalidRequest
from federation.model.placement import (
    Binding,
    BindingVersion,
    Certificate,
    EvictionTask,
    Gang,
    OnClusterLoss,
    OnClusterReturn,
    Placement,
    PreemptionPolicy,
    PurgeMode,
)
from federation.model.workload import ObjectReference, TargetCluster
from federation.v1 import resource_pb2

BINDING_API_VERSION: Final = "work.karmada.io/v1alpha2"
# The id of a history has hyphens itself.
_VERSION: Final = re.compile(r"([0-9a-f-]*)-([0-9]{1,19})-([0-9]{1,19})", re.ASCII)


def binding_from_message(message: resource_pb2.ResourceBinding, path: str = "") -> Binding:
    """The binding; raises InvalidRequest with every broken rule, under ``path``."""
    found = Violations()
    check_type_meta(message, path, found)
    refuse_nul(message, path, found)
    check_rules(message, path, found)
    binding = _read(message, path, found)
    found.check()
    return binding


def binding_to_message(binding: Binding, history: str = "") -> resource_pb2.ResourceBinding:
    """The message; a stored binding has its version in that history of the database."""
    version = BindingVersion(history, binding.stored_id, binding.resource_version)
    message = resource_pb2.ResourceBinding(
        api_version=BINDING_API_VERSION,
        kind="ResourceBinding" if binding.namespace else "ClusterResourceBinding",
        metadata=resource_pb2.ObjectMeta(
            name=binding.name,
            namespace=binding.namespace,
            labels=binding.labels,
            annotations=binding.annotations,
            uid=binding.uid,
            resource_version=str(version) if binding.stored_id else "",
            generation=binding.generation,
        ),
        spec=resource_pb2.ResourceBindingSpec(
            resource=resource_pb2.ObjectReference(
                api_version=binding.resource.api_version,
                kind=binding.resource.kind,
                namespace=binding.resource.namespace,
                name=binding.resource.name,
                uid=binding.resource.uid,
            ),
            replicas=binding.replicas,
            replica_requirements=requirements_to_message(binding.requirements),
            placement=placement_to_message(binding.placement),
            scheduler_name=binding.scheduler_name,
            certificate=binding.certificate or "",
            lease_seconds=binding.lease_seconds,
            preemption_policy=binding.preemption_policy.value,
            min_available=binding.min_available,
            preemptible=None if binding.preemptible else False,
        ),
    )
    _write_optional(binding, message)
    return message


def eviction_message(task: EvictionTask) -> resource_pb2.GracefulEvictionTask:
    created_at = task.created_at
    return resource_pb2.GracefulEvictionTask(
        from_cluster=task.from_cluster,
        replicas=task.replicas,
        reason=task.reason,
        message=task.message,
        producer=task.producer,
        creation_timestamp=None if created_at is None else timestamp_from_seconds(created_at),
        clusters_before_failover=[each.name for each in task.clusters_before],
        purge_mode=task.purge_mode or "",
    )


def put_targets(
    clusters: Iterable[TargetCluster], add: Callable[..., resource_pb2.TargetCluster]
) -> None:
    """Write target clusters into a field, whose ``add`` is given."""
    for each in clusters:
        add(name=each.name, replicas=each.replicas)


def _write_optional(binding: Binding, message: resource_pb2.ResourceBinding) -> None:
    spec = message.spec
    put_targets(binding.clusters, spec.clusters.add)
    spec.components.extend(component_messages(binding.components))
    spec.graceful_eviction_tasks.extend(map(eviction_message, binding.eviction_tasks))
    if binding.priority:
        spec.schedule_priority.priority = binding.priority
    if binding.on_cluster_loss is not OnClusterLoss.REPLACE:
        spec.on_cluster_loss = binding.on_cluster_loss.value
    if binding.on_cluster_return is not OnClusterReturn.KEEP_REPLACEMENT:
        spec.on_cluster_return = binding.on_cluster_return.value
    if binding.gang is not None:
        gang = binding.gang
        spec.gang.MergeFrom(
            resource_pb2.Gang(name=gang.name, size=gang.size, timeout_seconds=gang.timeout_seconds)
        )
    if binding.suspended:
        spec.suspension.scheduling = True
    if binding.reschedule_triggered_at is not None:
        spec.reschedule_triggered_at.CopyFrom(
            timestamp_from_seconds(binding.reschedule_triggered_at)
        )
    if binding.last_scheduled_time is not None:
        message.status.last_scheduled_time.CopyFrom(
            timestamp_from_seconds(binding.last_scheduled_time)
        )


def _read(message: resource_pb2.ResourceBinding, path: str, found: Violations) -> Binding:
    spec, here = message.spec, joined(path, "spec")
    metadata, there = message.metadata, joined(path, "metadata")
    # In the order in which what is wrong is told: the spec, the metadata, the times.
    return Binding(
        resource=_resource(spec.resource),
        replicas=spec.replicas,
        requirements=read_requirements(
            spec.replica_requirements, f"{here}.replicaRequirements", found
        ),
        components=read_components(spec.components, f"{here}.components", found),
        clusters=_targets(spec.clusters, f"{here}.clusters", found),
        placement=_placement(spec, f"{here}.placement", found),
        scheduler_name=spec.scheduler_name,
        priority=spec.schedule_priority.priority,
        eviction_tasks=_eviction_tasks(
            spec.graceful_eviction_tasks, f"{here}.gracefulEvictionTasks", found
        ),
        suspended=spec.suspension.scheduling,
        certificate=ranges.optional_choice(spec.certificate, Certificate),
        lease_seconds=spec.lease_seconds if spec.HasField("lease_seconds") else None,
        preemption_policy=_word(spec.preemption_policy, PreemptionPolicy),
        min_available=spec.min_available if spec.HasField("min_available") else None,
        preemptible=spec.preemptible if spec.HasField("preemptible") else True,
        on_cluster_loss=_word(spec.on_cluster_loss, OnClusterLoss),
        on_cluster_return=_word(spec.on_cluster_return, OnClusterReturn),
        gang=_gang(spec.gang) if spec.HasField("gang") else None,
        namespace=ranges.namespace_name(metadata.namespace, f"{there}.namespace", found),
        name=ranges.object_name(metadata.name, f"{there}.name", found),
        uid=metadata.uid,
        labels=dict(metadata.labels),
        annotations=texts.annotation_map(metadata.annotations, f"{there}.annotations", found),
        generation=metadata.generation or 1,
        expected_version=_expected_version(
            metadata.resource_version, f"{there}.resourceVersion", found
        ),
        reschedule_triggered_at=(
            triggered := ranges.optional_seconds(
                spec, "reschedule_triggered_at", f"{here}.rescheduleTriggeredAt", found
            )
        ),
        last_scheduled_time=(
            last := ranges.optional_seconds(
                message.status,
                "last_scheduled_time",
                f"{joined(path, 'status')}.lastScheduledTime",
                found,
            )
        ),
        # A trigger that no scheduling has followed yet asks to divide anew.
        fresh=triggered is not None and (last is None or triggered > last),
        is_unsettled=has_new_placement(message),
        observed_affinity=message.status.scheduler_observing_affinity_name,
    )


def _expected_version(text: str, path: str, found: Violations) -> BindingVersion | None:
    """The version that a caller has read; None where it names none of ours."""
    if not text or is_foreign_version(text):
        return None
    match = _VERSION.fullmatch(text)
    if match is None or max(map(int, match.groups()[1:])) > ranges.MAX_INT64:
        found.add(path, "is not one that was given out: send back what was read")
        return None
    return BindingVersion(match[1], int(match[2]), int(match[3]))


def _word(text: str, choices: type[ranges.Word]) -> ranges.Word:
    """Return the first choice for an empty text."""
    return ranges.choice(text, choices, default=next(iter(choices)))


def _placement(spec: resource_pb2.ResourceBindingSpec, path: str, found: Violations) -> Placement:
    if spec.HasField("placement"):
        return read_placement(spec.placement, path, found)
    return Placement()


def _resource(message: resource_pb2.ObjectReference) -> ObjectReference:
    return ObjectReference(
        api_version=message.api_version,
        kind=message.kind,
        namespace=message.namespace,
        name=message.name,
        uid=message.uid,
    )


def _targets(
    messages: Sequence[resource_pb2.TargetCluster], path: str, found: Violations
) -> tuple[TargetCluster, ...]:
    if not messages:
        return ()
    targets = tuple(
        TargetCluster(name=message.name, replicas=message.replicas) for message in messages
    )
    ranges.distinct((each.name for each in targets), path, found, field=".name")
    return targets


def _eviction_tasks(
    messages: Sequence[resource_pb2.GracefulEvictionTask], path: str, found: Violations
) -> tuple[EvictionTask, ...]:
    if not messages:
        return ()
    return tuple(
        _eviction_task(message, f"{path}[{position}]", found)
        for position, message in enumerate(messages)
    )


def _gang(message: resource_pb2.Gang) -> Gang:
    timeout = message.timeout_seconds if message.HasField("timeout_seconds") else None
    return Gang(name=message.name, size=message.size, timeout_seconds=timeout)


def _eviction_task(
    message: resource_pb2.GracefulEvictionTask, path: str, found: Violations
) -> EvictionTask:
    """Of where it ran before only names travel: an eviction cannot be taken back by these."""
    return EvictionTask(
        from_cluster=message.from_cluster,
        replicas=message.replicas,
        reason=message.reason,
        message=message.message,
        producer=message.producer,
        created_at=ranges.optional_seconds(
            message, "creation_timestamp", f"{path}.creationTimestamp", found
        ),
        purge_mode=ranges.optional_choice(message.purge_mode, PurgeMode),
    )


APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"


def has_new_placement(message: resource_pb2.ResourceBinding) -> bool:
    """Whether the clusters of a binding were chosen by another placement than it has now.

    False where no annotation says by which, and where the annotation cannot be read.
    """
    text = message.metadata.annotations.get(APPLIED_PLACEMENT)
    if text is None or not message.spec.clusters:
        return False
    found = Violations()
    try:
        applied = message_from_document(json.loads(text), resource_pb2.Placement)
    except (ValueError, RecursionError, InvalidRequest):
        return False
    before = read_placement(applied, "", found)
    return not found and before != read_placement(message.spec.placement, "", found)
