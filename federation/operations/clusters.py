"""Operations on clusters: joining, reading, changing what people say about them.

Must not decide anything: ``Registration`` and ``Membership`` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType

from federation.codec.clusters import cluster_from_message, cluster_to_message
from federation.codec.packable import Packable
from federation.codec.ranges import size
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.failover.breaker import Freeze
from federation.model.cluster import Cluster
from federation.model.reported_pools import reported_pools
from federation.operations.table import OperationCall, operation
from federation.rpc.bindings import read_off_loop
from federation.rpc.joining import join_command
from federation.rpc.pages import fitting, id_of, key_of, page_size_of, page_token
from federation.services.agent_values import Enrollment
from federation.services.member_ports import StoredJoinToken
from federation.services.members.join import DEFAULT_TOKEN_SECONDS
from federation.services.values import ClusterView
from federation.v1 import clusters_pb2 as messages
from federation.v1.resource_pb2 import Cluster as ClusterMessage

# Kubernetes keeps objects of up to 1.5 MiB. An answer holds 4, the agent's part included.
MAX_CLUSTER_BYTES = 1536 * 1024


def _enrollment(request: messages.EnrollClusterRequest, _: Violations) -> Enrollment:
    return Enrollment(
        cluster=request.cluster,
        token=request.token,
        cluster_uid=request.cluster_uid,
        kubernetes_version=request.kubernetes_version,
        agent_version=request.agent_version,
        provider=request.provider,
        region=request.region,
        zones=tuple(request.zones),
    )


@operation("Clusters/CreateJoinToken")
async def create_join_token(
    call: OperationCall, request: messages.CreateJoinTokenRequest
) -> messages.CreateJoinTokenResponse:
    seconds = request.ttl_seconds if request.HasField("ttl_seconds") else DEFAULT_TOKEN_SECONDS
    created = await call.services.registration.create_join_token(request.cluster, seconds)
    advertised = call.services.advertised()
    return messages.CreateJoinTokenResponse(
        token=created.token,
        expire_time=timestamp_from_seconds(created.expires_at),
        endpoint=advertised.endpoint,
        ca_url=advertised.ca_url,
        ca_sha256=advertised.ca_sha256,
        command=join_command(advertised, created.cluster, created.token),
    )


@operation("Clusters/ListJoinTokens")
async def list_join_tokens(
    call: OperationCall, request: messages.ListJoinTokensRequest
) -> messages.ListJoinTokensResponse:
    limit = page_size_of(request.page_size)
    listed = await call.services.registration.list_join_tokens(
        id_of(request.page_token), limit + 1, scope=call.scope
    )
    page = listed[:limit]
    return messages.ListJoinTokensResponse(
        tokens=map(_join_token_message, page),
        next_page_token=page_token([page[-1].id]) if len(listed) > limit else "",
    )


@operation("Clusters/RevokeJoinToken")
async def revoke_join_token(
    call: OperationCall, request: messages.RevokeJoinTokenRequest
) -> messages.RevokeJoinTokenResponse:
    token = await call.services.registration.revoke_join_token(request.id, scope=call.scope)
    return messages.RevokeJoinTokenResponse(token=_join_token_message(token))


@operation("Clusters/AcceptCluster")
async def accept_cluster(
    call: OperationCall, request: messages.AcceptClusterRequest
) -> messages.AcceptClusterResponse:
    view = await call.services.membership.accept(request.name)
    return messages.AcceptClusterResponse(cluster=_message(view, call))


@operation("Clusters/RejectCluster")
async def reject_cluster(
    call: OperationCall, request: messages.RejectClusterRequest
) -> messages.RejectClusterResponse:
    await call.services.membership.reject(request.name)
    return messages.RejectClusterResponse()


@operation("Clusters/EnrollCluster", read=_enrollment)
async def enroll_cluster(
    call: OperationCall, enrollment: Enrollment
) -> messages.EnrollClusterResponse:
    issued = await call.services.registration.enroll(enrollment)
    return messages.EnrollClusterResponse(
        credential=issued.credential,
        expire_time=timestamp_from_seconds(issued.expires_at),
        last_epoch=issued.last_epoch,
    )


@operation("Clusters/ListClusters")
async def list_clusters(
    call: OperationCall, request: messages.ListClustersRequest
) -> messages.ListClustersResponse:
    watches = call.services.cluster_watches
    # Read ahead of the list; later pages have the version of the first one.
    now = watches.resource_version(watches.position)
    version, after = key_of(request.page_token, 2) or (now, "")
    page = await call.services.registration.list_clusters(
        after, page_size_of(request.page_size), scope=call.scope
    )
    freezes = await _freezes(page.views, call)
    write = partial(_message, call=call, packable=request.include_packable, freezes=freezes)
    clusters = fitting(map(write, page.views))
    complete = len(clusters) == len(page.views)
    next_after = page.next_after if complete else clusters[-1].metadata.name
    return messages.ListClustersResponse(
        clusters=clusters,
        next_page_token=page_token([version, next_after]) if next_after else "",
        fleet_generation=page.fleet_generation,
        resource_version=version,
    )


@operation("Clusters/GetCluster")
async def get_cluster(
    call: OperationCall, request: messages.GetClusterRequest
) -> messages.GetClusterResponse:
    view = await call.services.registration.get_cluster(request.name)
    freezes = await _freezes([view], call)
    return messages.GetClusterResponse(cluster=_message(view, call, freezes=freezes))


@operation("Clusters/UpdateCluster", checked=False)
async def update_cluster(
    call: OperationCall, request: messages.UpdateClusterRequest
) -> messages.UpdateClusterResponse:
    cluster = await read_off_loop(request.cluster, _read_cluster)
    expected = cluster.resource_version if request.cluster.metadata.resource_version else None
    view = await call.services.registration.update_cluster(
        cluster, expected, now=call.services.clock.now()
    )
    return messages.UpdateClusterResponse(cluster=_message(view, call))


@operation("Clusters/CordonCluster")
async def cordon_cluster(
    call: OperationCall, request: messages.CordonClusterRequest
) -> messages.CordonClusterResponse:
    view = await call.services.membership.cordon(
        request.name, cordoned=request.cordoned, reason=request.reason, by=str(call.caller)
    )
    return messages.CordonClusterResponse(cluster=_message(view, call))


@operation("Clusters/DeleteCluster")
async def delete_cluster(
    call: OperationCall, request: messages.DeleteClusterRequest
) -> messages.DeleteClusterResponse:
    await call.services.membership.delete(request.name, force=request.force)
    return messages.DeleteClusterResponse()


@operation("Clusters/ReplaceCluster")
async def replace_cluster(
    call: OperationCall, request: messages.ReplaceClusterRequest
) -> messages.ReplaceClusterResponse:
    view = await call.services.membership.replace(request.name, request.cluster_uid)
    return messages.ReplaceClusterResponse(cluster=_message(view, call))


@operation("Clusters/RevokeCluster")
async def revoke_cluster(
    call: OperationCall, request: messages.RevokeClusterRequest
) -> messages.RevokeClusterResponse:
    ended = await call.services.membership.revoke(request.name)
    return messages.RevokeClusterResponse(credentials=ended)


async def _freezes(views: Iterable[ClusterView], call: OperationCall) -> Mapping[str, Freeze]:
    """Return what keeps bindings on silent clusters."""
    now = call.services.clock.now()
    silent = [view.state.cluster for view in views if view.presence.is_silent_at(now)]
    return await call.services.failover.freezes(silent) if silent else {}


def _message(
    view: ClusterView,
    call: OperationCall,
    *,
    packable: bool = False,
    freezes: Mapping[str, Freeze] = MappingProxyType({}),
) -> ClusterMessage:
    packed_into = None
    if packable and (room := view.room) is not None:
        packed_into = Packable(
            pools=reported_pools(room.pools),
            promised=room.outstanding,
            stuck=tuple(held.unplaced if held.is_broken else 0 for held in room.holdings),
        )
    elif packable and view.outstanding:
        packed_into = Packable(pools=None, promised=view.outstanding)
    return cluster_to_message(
        view.state,
        view.presence,
        silent=view.presence.is_silent_at(call.services.clock.now()),
        overcommitted=view.overcommitted,
        careful_reserve=view.careful_reserve,
        promised=view.promised,
        packable=packed_into,
        freeze=freezes.get(view.state.cluster.name),
    )


def _join_token_message(token: StoredJoinToken) -> messages.JoinToken:
    return messages.JoinToken(
        id=token.id,
        cluster=token.cluster,
        create_time=timestamp_from_seconds(token.created_at),
        expire_time=timestamp_from_seconds(token.expires_at),
    )


def _read_cluster(message: ClusterMessage) -> Cluster:
    """Read a cluster. Raises InvalidRequest with every broken rule."""
    violations = Violations()
    size(message, "cluster", violations, most_bytes=MAX_CLUSTER_BYTES)
    violations.check()
    return cluster_from_message(message)
