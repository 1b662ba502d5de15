"""The asynchronous client: one method per rpc, pages followed, failures as the error tree.

Must not repeat what changes something: callers know whether that is harmless. Watches go on by
themselves.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from functools import partial
from typing import Any, Protocol, Self, TypeVar, cast

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from federation.client.channels import Channels
from federation.client.estimates import EstimateTable
from federation.client.failures import error_of
from federation.client.joining import JoiningCalls
from federation.client.paging import listed
from federation.client.plans import PlanCalls
from federation.client.targets import Target
from federation.client.watching import WatchMessage, watched
from federation.v1 import (
    access_pb2,
    access_pb2_grpc,
    clusters_pb2,
    clusters_pb2_grpc,
    estimates_pb2,
    estimates_pb2_grpc,
    failover_pb2,
    failover_pb2_grpc,
    resource_pb2,
    scheduling_pb2,
    scheduling_pb2_grpc,
    scoring_pb2,
    scoring_pb2_grpc,
    simulation_pb2,
    simulation_pb2_grpc,
)

_BEST = estimates_pb2.ESTIMATE_SOURCE_UNSPECIFIED

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _UnaryMethod(Protocol[T_co]):
    def __call__(
        self, request: Any, /, *, timeout: float | None, metadata: Any
    ) -> Awaitable[T_co]: ...


class Client:
    """A connection to control planes. Use as ``async with Client(target) as client:``."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._channels = Channels(target)
        # To the stubs these are one.
        channel = cast("grpc.aio.Channel", self._channels)
        self._metadata = (("authorization", f"Bearer {target.token}"),) if target.token else ()
        self._access = access_pb2_grpc.AccessStub(channel)
        self._clusters = clusters_pb2_grpc.ClustersStub(channel)
        self._estimates = estimates_pb2_grpc.EstimatesStub(channel)
        self._failover = failover_pb2_grpc.FailoverStub(channel)
        self.joining = JoiningCalls(channel, self._answer)
        self.plans = PlanCalls(channel, self._answer, lambda: self._metadata)
        self._scheduling = scheduling_pb2_grpc.SchedulingStub(channel)
        self._scoring = scoring_pb2_grpc.ScoringStub(channel)
        self._simulation = simulation_pb2_grpc.SimulationStub(channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def server_ahead_seconds(self) -> float | None:
        """How far the clock of the control plane that answered last is ahead of the clock here.

        None before an answer, and where an older control plane does not say its time.
        """
        return self._channels.server_ahead_seconds

    def renew(self, target: Target) -> None:
        """Call by this target from now on; calls under way go on as they began."""
        self._target = target
        self._channels.renew(target)
        self._metadata = (("authorization", f"Bearer {target.token}"),) if target.token else ()

    async def close(self) -> None:
        """Closes the connection; calls under way end with an error."""
        await self._channels.close()

    async def create_join_token(
        self, cluster: str, *, ttl_seconds: int | None = None
    ) -> clusters_pb2.CreateJoinTokenResponse:
        """A single-use token with which one agent may join as ``cluster``."""
        request = clusters_pb2.CreateJoinTokenRequest(cluster=cluster, ttl_seconds=ttl_seconds)
        return await self._answer(self._clusters.CreateJoinToken, request)

    async def list_clusters(self, *, include_packable: bool = False) -> list[resource_pb2.Cluster]:
        """Every cluster, by ascending name; with what simulations pack into when asked for."""
        request = clusters_pb2.ListClustersRequest(include_packable=include_packable)
        ask = partial(self._answer, self._clusters.ListClusters)
        return await listed(ask, request, lambda page: page.clusters)

    async def get_cluster(self, name: str) -> resource_pb2.Cluster:
        """One cluster by name."""
        request = clusters_pb2.GetClusterRequest(name=name)
        return (await self._answer(self._clusters.GetCluster, request)).cluster

    async def update_cluster(self, cluster: resource_pb2.Cluster) -> resource_pb2.Cluster:
        """Replaces labels, annotations and spec; returns the cluster as stored."""
        request = clusters_pb2.UpdateClusterRequest(cluster=cluster)
        return (await self._answer(self._clusters.UpdateCluster, request)).cluster

    async def cordon_cluster(
        self, name: str, *, cordoned: bool, reason: str = ""
    ) -> resource_pb2.Cluster:
        """Keeps new replicas away from a cluster, or lets them in again."""
        request = clusters_pb2.CordonClusterRequest(name=name, cordoned=cordoned, reason=reason)
        return (await self._answer(self._clusters.CordonCluster, request)).cluster

    async def delete_cluster(self, name: str, *, force: bool = False) -> None:
        """Forgets a cluster; refused while bindings hold replicas there, unless forced."""
        request = clusters_pb2.DeleteClusterRequest(name=name, force=force)
        await self._answer(self._clusters.DeleteCluster, request)

    async def replace_cluster(self, name: str, cluster_uid: str) -> resource_pb2.Cluster:
        """Gives a name to the Kubernetes cluster with that uid."""
        request = clusters_pb2.ReplaceClusterRequest(name=name, cluster_uid=cluster_uid)
        return (await self._answer(self._clusters.ReplaceCluster, request)).cluster

    async def revoke_cluster(self, name: str) -> int:
        """Ends a cluster's credentials at once; how many there were."""
        request = clusters_pb2.RevokeClusterRequest(name=name)
        return (await self._answer(self._clusters.RevokeCluster, request)).credentials

    async def estimate(
        self,
        shapes: Sequence[resource_pb2.ReplicaRequirements],
        *,
        clusters: Sequence[str] = (),
        highest_source: estimates_pb2.EstimateSource.ValueType = _BEST,
        model_rule: estimates_pb2.ModelRule.ValueType = estimates_pb2.MODEL_RULE_UNSPECIFIED,
        merge: estimates_pb2.EstimateMerge.ValueType = estimates_pb2.ESTIMATE_MERGE_UNSPECIFIED,
    ) -> EstimateTable:
        """How many replicas of each shape fit in each cluster."""
        request = estimates_pb2.EstimateReplicasRequest(
            shapes=shapes,
            clusters=clusters,
            highest_source=highest_source,
            model_rule=model_rule,
            merge=merge,
            include_cluster_names=True,
            include_upper_bounds=True,
        )
        answer = await self._answer(self._estimates.EstimateReplicas, request)
        return EstimateTable.of(answer, shapes=len(shapes))

    async def estimate_component_sets(
        self,
        components: Sequence[resource_pb2.Component],
        *,
        namespace: str = "",
        clusters: Sequence[str] = (),
        highest_source: estimates_pb2.EstimateSource.ValueType = _BEST,
    ) -> EstimateTable:
        """How many whole sets of a workload's components fit in each cluster."""
        request = estimates_pb2.EstimateComponentSetsRequest(
            components=components,
            namespace=namespace,
            clusters=clusters,
            highest_source=highest_source,
            include_cluster_names=True,
        )
        answer = await self._answer(self._estimates.EstimateComponentSets, request)
        return EstimateTable.of_sets(answer)

    async def schedule(
        self,
        binding: resource_pb2.ResourceBinding,
        *,
        adopt: bool = False,
        wait: bool = True,
        node_timeout_seconds: float = 0.0,
        idempotency_key: str = "",
    ) -> scheduling_pb2.ScheduleResponse:
        """Decides a binding; the decision is committed when this returns.

        With a key the call may be repeated for a day, and is decided once.
        """
        request = scheduling_pb2.ScheduleRequest(
            binding=binding,
            adopt=adopt,
            wait=wait,
            node_timeout_seconds=node_timeout_seconds,
            idempotency_key=idempotency_key,
        )
        return await self._answer(self._scheduling.Schedule, request)

    async def preview(
        self, binding: resource_pb2.ResourceBinding, *, adopt: bool = False, wait: bool = True
    ) -> scheduling_pb2.ScheduleResponse:
        """Decides a binding and commits nothing; ``preview_token`` of the answer does."""
        request = scheduling_pb2.ScheduleRequest(
            binding=binding, adopt=adopt, wait=wait, preview=True
        )
        return await self._answer(self._scheduling.Schedule, request)

    async def commit_preview(
        self, token: str, *, node_timeout_seconds: float = 0.0
    ) -> scheduling_pb2.ScheduleResponse:
        """Commits exactly what a preview showed; may be repeated."""
        request = scheduling_pb2.ScheduleRequest(
            preview_token=token, node_timeout_seconds=node_timeout_seconds
        )
        return await self._answer(self._scheduling.Schedule, request)

    async def schedule_batch(
        self, items: Sequence[scheduling_pb2.ScheduleBatchItem], *, atomic: bool = False
    ) -> list[scheduling_pb2.ScheduleBatchResult]:
        """Decides several bindings by priority; the answers are in the order of the items.

        Of an ``atomic`` batch all items are placed, or none.
        """
        request = scheduling_pb2.ScheduleBatchRequest(items=items, atomic=atomic)
        return list((await self._answer(self._scheduling.ScheduleBatch, request)).results)

    async def simulate(
        self,
        clusters: Sequence[resource_pb2.Cluster],
        bindings: Sequence[resource_pb2.ResourceBinding],
        *,
        options: simulation_pb2.SimulationOptions | None = None,
    ) -> list[scheduling_pb2.Decision]:
        """What would be decided for these bindings, in order, on these clusters alone."""
        request = simulation_pb2.SimulateRequest(
            clusters=clusters, bindings=bindings, options=options
        )
        return list((await self._answer(self._simulation.Simulate, request)).decisions)

    async def score_nodes(
        self,
        configuration: str,
        pod: scoring_pb2.ScoringPod,
        nodes: Sequence[scoring_pb2.ScoringNode],
        *,
        scheduler_name: str = "",
        scale: scoring_pb2.ScoreScale.ValueType = scoring_pb2.SCORE_SCALE_UNSPECIFIED,
    ) -> scoring_pb2.ScoreNodesResponse:
        """These nodes' scores for a pod, in their order, by a scheduler's configuration."""
        request = scoring_pb2.ScoreNodesRequest(
            configuration=configuration,
            scheduler_name=scheduler_name,
            scale=scale,
            pod=pod,
            nodes=nodes,
        )
        return await self._answer(self._scoring.ScoreNodes, request)

    async def get_binding(self, namespace: str, name: str) -> scheduling_pb2.GetBindingResponse:
        """A binding with its newest decision and what it holds."""
        request = scheduling_pb2.GetBindingRequest(namespace=namespace, name=name)
        return await self._answer(self._scheduling.GetBinding, request)

    async def create_token(
        self, request: access_pb2.CreateTokenRequest
    ) -> access_pb2.CreateTokenResponse:
        """A token with a role; its secret is in this answer and nowhere else."""
        return await self._answer(self._access.CreateToken, request)

    async def list_tokens(self) -> list[access_pb2.Token]:
        """Every token, by ascending id, without its secret."""
        ask = partial(self._answer, self._access.ListTokens)
        return await listed(ask, access_pb2.ListTokensRequest(), lambda page: page.tokens)

    async def who_am_i(self) -> access_pb2.WhoAmIResponse:
        """The caller, as its credential says."""
        return await self._answer(self._access.WhoAmI, access_pb2.WhoAmIRequest())

    async def set_quota(self, quota: access_pb2.Quota) -> access_pb2.Quota:
        """How much a namespace may hold promised; without any limit it has no quota."""
        request = access_pb2.SetQuotaRequest(quota=quota)
        return (await self._answer(self._access.SetQuota, request)).quota

    async def list_quotas(self) -> list[access_pb2.Quota]:
        """Every quota with what is held, by ascending namespace."""
        ask = partial(self._answer, self._access.ListQuotas)
        return await listed(ask, access_pb2.ListQuotasRequest(), lambda page: page.quotas)

    async def revoke_token(self, token_id: str) -> access_pb2.Token:
        """Ends a token, on every control plane within two seconds."""
        request = access_pb2.RevokeTokenRequest(id=token_id)
        return (await self._answer(self._access.RevokeToken, request)).token

    async def list_audit(
        self, request: access_pb2.ListAuditRequest, *, limit: int
    ) -> list[access_pb2.AuditRecord]:
        """Changes and refusals, the newest first, at most ``limit``."""
        ask = partial(self._answer, self._access.ListAudit)
        return await listed(ask, request, lambda page: page.records, limit)

    async def get_audit_chain(self, after_seal: int = 0) -> access_pb2.GetAuditChainResponse:
        """The next sealed records and the head of the chain; no records: there are no more."""
        request = access_pb2.GetAuditChainRequest(after_seal=after_seal)
        return await self._answer(self._access.GetAuditChain, request)

    async def list_bindings(self, namespace: str = "") -> list[resource_pb2.ResourceBinding]:
        """Every binding of a namespace (empty: of all), by ascending (namespace, name)."""
        request = scheduling_pb2.ListBindingsRequest(namespace=namespace)
        ask = partial(self._answer, self._scheduling.ListBindings)
        return await listed(ask, request, lambda page: page.bindings)

    async def list_queue(
        self, namespace: str = "", *, priority: int | None = None
    ) -> list[scheduling_pb2.QueuedBinding]:
        """What waits for room, in the order in which it is tried; of one priority, if given."""
        request = scheduling_pb2.ListQueueRequest(namespace=namespace, priority=priority)
        ask = partial(self._answer, self._scheduling.ListQueue)
        return await listed(ask, request, lambda page: page.bindings)

    async def suspend_binding(
        self, namespace: str, name: str, *, uid: str = "", resume: bool = False
    ) -> scheduling_pb2.SuspendBindingResponse:
        """Keeps a binding from being decided, or lets it be decided again; what runs stays."""
        request = scheduling_pb2.SuspendBindingRequest(
            namespace=namespace, name=name, uid=uid, resume=resume
        )
        return await self._answer(self._scheduling.SuspendBinding, request)

    async def reschedule_binding(
        self, namespace: str, name: str, *, uid: str = ""
    ) -> scheduling_pb2.RescheduleBindingResponse:
        """Decides a binding anew, as it is stored."""
        request = scheduling_pb2.RescheduleBindingRequest(namespace=namespace, name=name, uid=uid)
        return await self._answer(self._scheduling.RescheduleBinding, request)

    async def delete_binding(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Deletes a binding; its decisions stay readable by id."""
        request = scheduling_pb2.DeleteBindingRequest(namespace=namespace, name=name, uid=uid)
        await self._answer(self._scheduling.DeleteBinding, request)

    async def release(
        self, namespace: str, name: str, *, uid: str = "", clusters: Sequence[str] = ()
    ) -> list[scheduling_pb2.Reservation]:
        """Ends what a binding holds in clusters (none named: in all); what that was."""
        request = scheduling_pb2.ReleaseReservationRequest(
            namespace=namespace, name=name, uid=uid, clusters=clusters
        )
        return list((await self._answer(self._scheduling.ReleaseReservation, request)).released)

    async def renew_lease(
        self, namespace: str, name: str, *, uid: str = "", lease_seconds: int | None = None
    ) -> scheduling_pb2.RenewLeaseResponse:
        """Prolongs a binding's lease from now on: as its spec says, or by so many seconds."""
        request = scheduling_pb2.RenewLeaseRequest(
            namespace=namespace, name=name, uid=uid, lease_seconds=lease_seconds
        )
        return await self._answer(self._scheduling.RenewLease, request)

    def watch_bindings(
        self, namespace: str = "", *, resource_version: str = ""
    ) -> AsyncGenerator[WatchMessage[scheduling_pb2.BindingEvent]]:
        """What is there (unless a version is given) and every change; goes on by itself."""

        def opened(version: str) -> Any:
            request = scheduling_pb2.WatchBindingsRequest(
                namespace=namespace, resource_version=version
            )
            method: Any = self._scheduling.WatchBindings
            return method(request, metadata=self._metadata)

        return watched(opened, resource_version)

    def watch_clusters(
        self, *, resource_version: str = ""
    ) -> AsyncGenerator[WatchMessage[clusters_pb2.ClusterEvent]]:
        """What is there (unless a version is given) and every change; goes on by itself."""

        def opened(version: str) -> Any:
            request = clusters_pb2.WatchClustersRequest(resource_version=version)
            method: Any = self._clusters.WatchClusters
            return method(request, metadata=self._metadata)

        return watched(opened, resource_version)

    async def get_decision(self, decision_id: str) -> scheduling_pb2.Decision:
        """A decision with its whole trace."""
        request = scheduling_pb2.GetDecisionRequest(id=decision_id)
        return (await self._answer(self._scheduling.GetDecision, request)).decision

    async def replay_decision(
        self, decision_id: str, *, from_reports: bool = False
    ) -> scheduling_pb2.ReplayDecisionResponse:
        """A decision made again from what it was made on, and whether that is the same; and
        ``from_reports``: whether reports say what was known of capacity.
        """
        request = scheduling_pb2.ReplayDecisionRequest(id=decision_id, from_reports=from_reports)
        return await self._answer(self._scheduling.ReplayDecision, request)

    async def export_trace(
        self, since: Timestamp | None = None, until: Timestamp | None = None
    ) -> AsyncGenerator[scheduling_pb2.ExportTraceResponse]:
        """The pieces of a trace of these times: all contents, one after the other, are the file."""
        request = scheduling_pb2.ExportTraceRequest(since=since, until=until)
        while True:
            piece = await self._answer(self._scheduling.ExportTrace, request)
            yield piece
            if not piece.next_page_token:
                return
            request.page_token = piece.next_page_token

    async def list_decisions(
        self, request: scheduling_pb2.ListDecisionsRequest, *, limit: int
    ) -> list[scheduling_pb2.Decision]:
        """The newest first, at most so many, without their traces."""
        ask = partial(self._answer, self._scheduling.ListDecisions)
        return await listed(ask, request, lambda page: page.decisions, limit)

    async def get_failover(self) -> failover_pb2.FailoverStatus:
        """Which clusters are silent or lost, and whether workloads are moved off them."""
        request = failover_pb2.GetFailoverRequest()
        return (await self._answer(self._failover.GetFailover, request)).status

    async def freeze_failover(
        self, reason: str, *, region: str = "", provider: str = ""
    ) -> failover_pb2.FailoverStatus:
        """Nothing is moved any more, until it is resumed; how it stands then."""
        request = failover_pb2.FreezeFailoverRequest(
            reason=reason, region=region, provider=provider
        )
        return (await self._answer(self._failover.FreezeFailover, request)).status

    async def resume_failover(
        self, *, region: str = "", provider: str = "", control_plane: str = ""
    ) -> failover_pb2.FailoverStatus:
        """Lets failover go on, whoever froze it; how it stands then."""
        request = failover_pb2.ResumeFailoverRequest(
            region=region, provider=provider, control_plane=control_plane
        )
        return (await self._answer(self._failover.ResumeFailover, request)).status

    async def _answer(self, method: _UnaryMethod[T], request: object) -> T:
        try:
            return await method(
                request, metadata=self._metadata, timeout=self._target.timeout_seconds
            )
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure) from failure
