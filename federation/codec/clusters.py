"""Member clusters, from messages and back.

Must not know who connects or how clusters are stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec import ranges, selectors, texts
from federation.codec.condition_types import FAILOVER_FROZEN, LOST, OVER_COMMITTED
from federation.codec.counts import refuse_too_many
from federation.codec.models import (
    grade_count_messages,
    model_to_messages,
    read_grade_counts,
    read_model,
)
from federation.codec.packable import Packable, packable_to_message, read_packable
from federation.codec.requirements import quantities_of
from federation.codec.rules import check_rules
from federation.codec.strict import check_type_meta, refuse_nul
from federation.codec.summaries import read_summary, summary_to_message
from federation.codec.timestamps import seconds_from_timestamp, timestamp_from_seconds
from federation.codec.violations import Violations, joined
from federation.model.cluster import (
    Blindness,
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
)
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.quotations import quoted
from federation.model.reservations import Outstanding
from federation.model.resources import PODS
from federation.v1 import resource_pb2

if TYPE_CHECKING:
    # Who only reads clusters need not load it.
    from federation.failover.breaker import Freeze

CLUSTER_API_VERSION: Final = "cluster.karmada.io/v1alpha1"
READY: Final = "Ready"
NO_PLACER: Final = "none"


class AgentView(Protocol):
    """What a cluster's status says of its agent; times in Unix seconds."""

    @property
    def connected(self) -> bool: ...
    @property
    def agent_version(self) -> str: ...
    @property
    def kubernetes_version(self) -> str: ...
    @property
    def placer(self) -> str: ...
    @property
    def last_heartbeat_at(self) -> float | None: ...
    @property
    def clock_offset_seconds(self) -> float: ...
    @property
    def blindness(self) -> Blindness | None: ...
    @property
    def skipped_objects(self) -> int: ...


def cluster_from_message(message: resource_pb2.Cluster, path: str = "") -> Cluster:
    """What people say about a cluster: metadata and spec. The status is read over.

    Raises InvalidRequest with every broken rule.
    """
    found = Violations()
    refuse_too_many(message.metadata, joined(path, "metadata"), found)
    refuse_too_many(message.spec, joined(path, "spec"), found)
    found.check()
    cluster = _read_cluster(message, path, found)
    found.check()
    return cluster


def cluster_state_from_message(
    message: resource_pb2.Cluster, now: float, path: str = ""
) -> ClusterState:
    """The cluster with its status as a report: for files, where nothing else reports.

    Without conditions it is ready, without API enablements it passes every filter on them, and
    without a resource summary there is no report. ``now`` is in Unix seconds.
    """
    found = Violations()
    cluster = _read_cluster(message, path, found)
    status, here = message.status, joined(path, "status")
    check_rules(status, here, found)
    report, promised = None, tuple[Outstanding, ...]()
    if status.HasField("resource_summary"):
        report = _report(message, cluster, now, here, found)
        if status.HasField("packable"):
            packable = read_packable(status.packable, f"{here}.packable", found)
            report = replace(report, pools=packable.pools)
            promised = packable.promised
    found.check()
    ready = [each.status == "True" for each in status.conditions if each.type == READY]
    return ClusterState(
        cluster=replace(
            cluster,
            ready=all(ready),
            cordoned=status.cordoned,
            cordon_reason=status.cordon_reason,
            cordoned_by=status.cordoned_by,
            held=status.held,
            api_enablements=enablements_from_messages(status.api_enablements),
        ),
        report=report,
        as_of=report.snapshot_time if report else None,
        promised=promised,
        follows_claims=status.agent.connected and status.agent.placer not in ("", NO_PLACER),
    )


def cluster_to_message(
    state: ClusterState,
    agent: AgentView | None = None,
    *,
    silent: bool = False,
    overcommitted: int = 0,
    careful_reserve: int = 0,
    packable: Packable | None = None,
    promised: Iterable[Outstanding] = (),
    freeze: Freeze | None = None,
) -> resource_pb2.Cluster:
    """The cluster as people read it; the default model is left out, as it may be written.

    With what decisions pack into where that is given. Whether it is Ready is unknown where its
    agent is ``silent``, or does not see it. ``promised`` is what no node has yet, ``overcommitted``
    replicas of it find no room in its report; of a careful promise up to ``careful_reserve`` are
    kept back. A ``freeze`` keeps bindings from being moved off it.
    """
    cluster = state.cluster
    message = resource_pb2.Cluster(
        api_version=CLUSTER_API_VERSION,
        kind="Cluster",
        metadata=resource_pb2.ObjectMeta(
            name=cluster.name,
            labels=cluster.labels,
            annotations=cluster.annotations,
            uid=cluster.uid,
            resource_version=str(cluster.resource_version),
            generation=cluster.generation,
        ),
        spec=resource_pb2.ClusterSpec(
            provider=cluster.provider,
            region=cluster.region,
            zones=cluster.zones,
            taints=selectors.taint_messages(cluster.taints),
            resource_models=model_to_messages(cluster.model)
            if cluster.model != DEFAULT_MODEL
            else (),
            resource_modeling_disabled=not cluster.modeling_enabled,
        ),
        status=resource_pb2.ClusterStatus(
            conditions=[_ready_condition(cluster, agent, silent=silent)],
            api_enablements=_enablement_messages(cluster.api_enablements or ()),
            cordoned=cluster.cordoned,
            cordon_reason=cluster.cordon_reason,
            cordoned_by=cluster.cordoned_by,
            held=cluster.held,
            careful_reserve=careful_reserve,
        ),
    )
    message.status.conditions.extend(_wrong_conditions(cluster, overcommitted, freeze))
    message.status.promised.update(quantities_of(promised_amounts(promised)))
    if state.report is not None:
        _write_report(state.report, message.status)
        if packable is not None:
            message.status.packable.CopyFrom(packable_to_message(packable))
    if agent is not None:
        _write_agent(agent, state, message.status)
    return message


def promised_amounts(promised: Iterable[Outstanding]) -> Counter[str]:
    """Return what promised replicas ask for beside pods on nodes, each with a pod slot."""
    amounts = Counter[str]()
    for each in promised:
        amounts[PODS] += each.to_pack
        for name, amount in each.requirements.request.items():
            amounts[name] += each.to_pack * amount
    return +amounts


def _ready_condition(
    cluster: Cluster, agent: AgentView | None, *, silent: bool
) -> resource_pb2.Condition:
    if silent:
        return resource_pb2.Condition(
            type=READY,
            status="Unknown",
            reason="AgentSilent",
            message="The agent has not connected, or has missed its heartbeats.",
            last_transition_time=_moment(agent.last_heartbeat_at) if agent else None,
        )
    blindness = agent.blindness if agent else None
    if blindness is not None:
        return resource_pb2.Condition(
            type=READY,
            status="Unknown",
            reason=blindness.reason,
            message=f"The cluster cannot be seen since {blindness.since_text}: {blindness.message}",
            last_transition_time=_moment(blindness.since),
        )
    return resource_pb2.Condition(type=READY, status="True" if cluster.ready else "False")


def _wrong_conditions(
    cluster: Cluster, overcommitted: int, freeze: Freeze | None
) -> Iterator[resource_pb2.Condition]:
    """Those that are only there while something is wrong."""
    if cluster.lost_since is not None:
        yield _lost_condition(cluster.lost_since)
    if freeze is not None:
        yield _frozen_condition(freeze)
    if overcommitted:
        yield _overcommitted_condition(overcommitted)


def _lost_condition(since: float) -> resource_pb2.Condition:
    return resource_pb2.Condition(
        type=LOST,
        status="True",
        reason="AgentSilent",
        message="The agent has been silent for too long: bindings that do not tolerate it are "
        "moved elsewhere. Nothing in the cluster is deleted because of it.",
        last_transition_time=_moment(since),
    )


def _frozen_condition(freeze: Freeze) -> resource_pb2.Condition:
    return resource_pb2.Condition(
        type=FAILOVER_FROZEN,
        status="True",
        reason="FrozenByItself" if freeze.is_by_breaker else "FrozenByPeople",
        message=f"Nothing is moved off this cluster: failover is frozen by "
        f"{quoted(freeze.by)}: {quoted(freeze.reason)}",
        last_transition_time=_moment(freeze.since),
    )


def _overcommitted_condition(replicas: int) -> resource_pb2.Condition:
    return resource_pb2.Condition(
        type=OVER_COMMITTED,
        status="True",
        reason="PromisesWithoutRoom",
        message=f"{replicas} promised replicas find no room in the newest report: "
        "the nodes that may become theirs are promised to nobody else.",
    )


def enablements_from_messages(
    messages: Iterable[resource_pb2.ApiEnablement],
) -> frozenset[tuple[str, str]] | None:
    """(groupVersion, kind) pairs; None when nothing is said."""
    pairs = frozenset(
        (each.group_version, resource.kind) for each in messages for resource in each.resources
    )
    return pairs or None


def _read_cluster(message: resource_pb2.Cluster, path: str, found: Violations) -> Cluster:
    check_type_meta(message, path, found)
    refuse_nul(message, path, found)
    metadata, spec = message.metadata, message.spec
    here, there = joined(path, "metadata"), joined(path, "spec")
    check_rules(metadata, here, found)
    check_rules(spec, there, found)
    if spec.zone and spec.zones and list(spec.zones) != [spec.zone]:
        found.add(f"{there}.zone", "cannot be combined with zones")
    return Cluster(
        name=ranges.cluster_name(metadata.name, f"{here}.name", found),
        uid=metadata.uid,
        labels=dict(metadata.labels),
        annotations=texts.annotation_map(metadata.annotations, f"{here}.annotations", found),
        provider=spec.provider,
        region=spec.region,
        zones=tuple(spec.zones) or ((spec.zone,) if spec.zone else ()),
        taints=selectors.taints(spec.taints, f"{there}.taints", found),
        model=read_model(spec.resource_models, f"{there}.resourceModels", found),
        modeling_enabled=not spec.resource_modeling_disabled,
        generation=metadata.generation or 1,
        resource_version=ranges.revision(
            metadata.resource_version, f"{here}.resourceVersion", found
        ),
    )


def _report(
    message: resource_pb2.Cluster, cluster: Cluster, now: float, path: str, found: Violations
) -> CapacityReport:
    status = message.status
    counts = read_grade_counts(
        status.resource_summary.allocatable_modelings,
        f"{path}.resourceSummary.allocatableModelings",
        found,
    )
    nodes = status.node_summary
    reported_at = None
    if status.agent.HasField("last_report_time"):
        reported_at = seconds_from_timestamp(status.agent.last_report_time)
    return CapacityReport(
        epoch=status.agent.report_epoch,
        sequence=status.agent.report_sequence,
        snapshot_time=now if reported_at is None else reported_at,
        summary=read_summary(status.resource_summary, f"{path}.resourceSummary", found),
        nodes=NodeSummary(
            total=nodes.total_num,
            ready=nodes.ready_num,
            graded=nodes.graded_num or sum(counts.values()),
        ),
        grade_counts=counts,
        model_hash=model_hash(cluster.model) if counts else "",
    )


def _write_report(report: CapacityReport, status: resource_pb2.ClusterStatus) -> None:
    status.node_summary.CopyFrom(
        resource_pb2.NodeSummary(
            total_num=report.nodes.total,
            ready_num=report.nodes.ready,
            graded_num=report.nodes.graded,
        )
    )
    status.resource_summary.CopyFrom(summary_to_message(report.summary))
    status.resource_summary.allocatable_modelings.extend(grade_count_messages(report.grade_counts))


def _write_agent(agent: AgentView, state: ClusterState, status: resource_pb2.ClusterStatus) -> None:
    status.kubernetes_version = agent.kubernetes_version
    written = status.agent
    written.connected = agent.connected
    written.version = agent.agent_version
    written.placer = agent.placer
    written.clock_offset_seconds = agent.clock_offset_seconds
    if state.report is not None:
        written.report_epoch = state.report.epoch
        written.report_sequence = state.report.sequence
    written.skipped_objects = agent.skipped_objects
    if state.as_of is not None:
        written.last_report_time.CopyFrom(timestamp_from_seconds(state.as_of))
    if agent.last_heartbeat_at is not None:
        written.last_heartbeat_time.CopyFrom(timestamp_from_seconds(agent.last_heartbeat_at))


def _moment(seconds: float | None) -> Timestamp | None:
    return None if seconds is None else timestamp_from_seconds(seconds)


def _enablement_messages(
    pairs: Iterable[tuple[str, str]],
) -> list[resource_pb2.ApiEnablement]:
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for group_version, kind in sorted(pairs):
        kinds[group_version].append(kind)
    return [
        resource_pb2.ApiEnablement(
            group_version=group_version,
            resources=[resource_pb2.ApiResource(kind=kind) for kind in each],
        )
        for group_version, each in kinds.items()
    ]
