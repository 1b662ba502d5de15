"""Clusters: joining, reading, changing what people say about them.

Must not decide anything: reads the message, calls ``Registration``, writes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from federation.codec import texts
from federation.codec.clusters import cluster_from_message, cluster_to_message
from federation.codec.packable import Packable
from federation.codec.ranges import required, size
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.failover.breaker import Freeze
from federation.model.cluster import Cluster
from federation.model.reported_pools import reported_pools
from federation.rpc.bindings import read_off_loop
from federation.rpc.calls import Context, caller
from federation.rpc.joining import Advertised, join_command
from federation.rpc.pages import fitting, id_of, key_of, page_size_of, page_token
from federation.rpc.watching import clusters_response, clusters_seen, serve_watch
from federation.services.agent_values import Enrollment
from federation.services.failover.control import FailoverControl
from federation.services.member_ports import StoredJoinToken
from federation.services.members.join import DEFAULT_TOKEN_SECONDS, Registration
from federation.services.members.lifecycle import Membership
from federation.services.ports import Clock
from federation.services.values import ClusterView
from federation.services.watching.watches import Watches
from federation.v1 import clusters_pb2 as messages
from federation.v1.clusters_pb2_grpc import ClustersServicer as Servicer
from federation.v1.resource_pb2 import Cluster as ClusterMessage

# Kubernetes keeps objects of up to 1.5 MiB. An answer holds 4, the agent's part included.
MAX_CLUSTER_BYTES = 1536 * 1024
MAX_REASON = 200


class ClustersServicer(Servicer):
    """Implements federation.v1.Clusters."""

    def __init__(
        self,
        registration: Registration,
        membership: Membership,
        advertised: Callable[[], Advertised],
        clock: Clock,
        watches: Watches[str, messages.ClusterEvent],
        failover: FailoverControl,
    ) -> None:
        self._registration = registration
        self._membership = membership
        self._advertised = advertised
        self._clock = clock
        self._watches = watches
        self._failover = failover

    async def CreateJoinToken(
        self, request: messages.CreateJoinTokenRequest, context: Context
    ) -> messages.CreateJoinTokenResponse:
        ttl_seconds = request.ttl_seconds if request.HasField("ttl_seconds") else None
        made = await self._registration.create_join_token(
            request.cluster, DEFAULT_TOKEN_SECONDS if ttl_seconds is None else ttl_seconds
        )
        advertised = self._advertised()
        return messages.CreateJoinTokenResponse(
            token=made.token,
            expire_time=timestamp_from_seconds(made.expires_at),
            endpoint=advertised.endpoint,
            ca_url=advertised.ca_url,
            ca_sha256=advertised.ca_sha256,
            command=join_command(advertised, made.cluster, made.token),
        )

    async def ListJoinTokens(
        self, request: messages.ListJoinTokensRequest, context: Context
    ) -> messages.ListJoinTokensResponse:
        limit = page_size_of(request.page_size)
        listed = await self._registration.list_join_tokens(
            id_of(request.page_token), limit + 1, scope=caller().scope
        )
        page = listed[:limit]
        return messages.ListJoinTokensResponse(
            tokens=map(_join_token_message, page),
            next_page_token=page_token([page[-1].id]) if len(listed) > limit else "",
        )

    async def RevokeJoinToken(
        self, request: messages.RevokeJoinTokenRequest, context: Context
    ) -> messages.RevokeJoinTokenResponse:
        found = Violations()
        refuse_nul(request, "", found)
        required(request.id, "id", found)
        found.check()
        token = await self._registration.revoke_join_token(request.id, scope=caller().scope)
        return messages.RevokeJoinTokenResponse(token=_join_token_message(token))

    async def AcceptCluster(
        self, request: messages.AcceptClusterRequest, context: Context
    ) -> messages.AcceptClusterResponse:
        view = await self._membership.accept(_name(request.name))
        return messages.AcceptClusterResponse(cluster=self._message(view))

    async def RejectCluster(
        self, request: messages.RejectClusterRequest, context: Context
    ) -> messages.RejectClusterResponse:
        await self._membership.reject(_name(request.name))
        return messages.RejectClusterResponse()

    async def EnrollCluster(
        self, request: messages.EnrollClusterRequest, context: Context
    ) -> messages.EnrollClusterResponse:
        found = Violations()
        refuse_nul(request, "", found)
        texts.uid(request.cluster_uid, "clusterUid", found)
        for field, text in (
            ("kubernetesVersion", request.kubernetes_version),
            ("agentVersion", request.agent_version),
            ("provider", request.provider),
            ("region", request.region),
        ):
            texts.word(text, field, found)
        texts.words(request.zones, "zones", found)
        found.check()
        issued = await self._registration.enroll(
            Enrollment(
                cluster=request.cluster,
                token=request.token,
                cluster_uid=request.cluster_uid,
                kubernetes_version=request.kubernetes_version,
                agent_version=request.agent_version,
                provider=request.provider,
                region=request.region,
                zones=tuple(request.zones),
            )
        )
        return messages.EnrollClusterResponse(
            credential=issued.credential,
            expire_time=timestamp_from_seconds(issued.expires_at),
            last_epoch=issued.last_epoch,
        )

    async def ListClusters(
        self, request: messages.ListClustersRequest, context: Context
    ) -> messages.ListClustersResponse:
        # Before the list is read; later pages have the first one's.
        now = self._watches.resource_version(self._watches.position)
        version, after = key_of(request.page_token, 2) or (now, "")
        page = await self._registration.list_clusters(
            after, page_size_of(request.page_size), scope=caller().scope
        )
        freezes = await self._freezes(page.views)
        write = partial(self._message, packable=request.include_packable, freezes=freezes)
        clusters = fitting(map(write, page.views))
        complete = len(clusters) == len(page.views)
        next_after = page.next_after if complete else clusters[-1].metadata.name
        return messages.ListClustersResponse(
            clusters=clusters,
            next_page_token=page_token([version, next_after]) if next_after else "",
            fleet_generation=page.fleet_generation,
            resource_version=version,
        )

    async def WatchClusters(  # type: ignore[override]  # the stub knows generators, not writers
        self, request: messages.WatchClustersRequest, context: Context
    ) -> None:
        asked = ("", request.resource_version)
        seen = clusters_seen(caller().scope)
        await serve_watch(self._watches, asked, context, clusters_response, seen)

    async def GetCluster(
        self, request: messages.GetClusterRequest, context: Context
    ) -> messages.GetClusterResponse:
        view = await self._registration.get_cluster(_name(request.name))
        freezes = await self._freezes([view])
        return messages.GetClusterResponse(cluster=self._message(view, freezes=freezes))

    async def UpdateCluster(
        self, request: messages.UpdateClusterRequest, context: Context
    ) -> messages.UpdateClusterResponse:
        cluster = await read_off_loop(request.cluster, _read_cluster)
        expected = cluster.resource_version if request.cluster.metadata.resource_version else None
        view = await self._registration.update_cluster(cluster, expected, now=self._clock.now())
        return messages.UpdateClusterResponse(cluster=self._message(view))

    async def CordonCluster(
        self, request: messages.CordonClusterRequest, context: Context
    ) -> messages.CordonClusterResponse:
        found = Violations()
        texts.word(request.reason, "reason", found, most=MAX_REASON)
        found.check()
        view = await self._membership.cordon(
            _name(request.name),
            cordoned=request.cordoned,
            reason=request.reason,
            by=str(caller()),
        )
        return messages.CordonClusterResponse(cluster=self._message(view))

    async def DeleteCluster(
        self, request: messages.DeleteClusterRequest, context: Context
    ) -> messages.DeleteClusterResponse:
        await self._membership.delete(_name(request.name), force=request.force)
        return messages.DeleteClusterResponse()

    async def ReplaceCluster(
        self, request: messages.ReplaceClusterRequest, context: Context
    ) -> messages.ReplaceClusterResponse:
        found = Violations()
        refuse_nul(request, "", found)
        required(request.name, "name", found)
        texts.uid(request.cluster_uid, "clusterUid", found)
        found.check()
        view = await self._membership.replace(request.name, request.cluster_uid)
        return messages.ReplaceClusterResponse(cluster=self._message(view))

    async def RevokeCluster(
        self, request: messages.RevokeClusterRequest, context: Context
    ) -> messages.RevokeClusterResponse:
        ended = await self._membership.revoke(_name(request.name))
        return messages.RevokeClusterResponse(credentials=ended)

    async def _freezes(self, views: Iterable[ClusterView]) -> Mapping[str, Freeze]:
        """What keeps bindings on those that are silent."""
        now = self._clock.now()
        silent = [each.state.cluster for each in views if each.presence.is_silent_at(now)]
        return await self._failover.freezes(silent) if silent else {}

    def _message(
        self,
        view: ClusterView,
        *,
        packable: bool = False,
        freezes: Mapping[str, Freeze] = MappingProxyType({}),
    ) -> ClusterMessage:
        packed_into = None
        if packable and (room := view.room) is not None:
            packed_into = Packable(
                pools=reported_pools(room.pools),
                promised=room.outstanding,
                stuck=tuple(each.unplaced if each.is_broken else 0 for each in room.holdings),
            )
        elif packable and view.outstanding:
            packed_into = Packable(pools=None, promised=view.outstanding)
        return cluster_to_message(
            view.state,
            view.presence,
            silent=view.presence.is_silent_at(self._clock.now()),
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
    """Raises InvalidRequest with every broken rule."""
    found = Violations()
    size(message, "cluster", found, most_bytes=MAX_CLUSTER_BYTES)
    found.check()
    return cluster_from_message(message)


def _name(name: str) -> str:
    """A name that was given. Raises InvalidRequest."""
    found = Violations()
    required(name, "name", found)
    found.check()
    return name
