"""Tokens, namespace quotas and the audit over the wire.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from importlib.metadata import version
from typing import Final

import grpc

from federation.codec import texts
from federation.codec.audit import head_to_message, record_to_message
from federation.codec.namespace_quotas import quota_from_message, quota_to_message
from federation.codec.ranges import optional_seconds, required, whole
from federation.codec.scopes import MOST_NAMED, labelled, limits_of, scope_of
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.access import Role
from federation.rpc.calls import Context, caller
from federation.rpc.pages import fitting, id_of, page_size_of, page_token, time_place_of
from federation.services.access.audit import AuditTrail
from federation.services.access.namespace_quotas import QuotaService
from federation.services.access.tokens import Tokens
from federation.services.ports import AuditFilter, NewToken, StoredToken
from federation.v1 import access_pb2 as messages
from federation.v1.access_pb2_grpc import AccessServicer as Servicer
from federation.v1.access_pb2_grpc import add_AccessServicer_to_server

RELEASE: Final = version("fedsched")
DEFAULT_SECONDS: Final = 90 * 86_400
LEAST_SECONDS: Final = 60
MOST_SECONDS: Final = 3650 * 86_400
CHAIN_PAGE: Final = 500
MOST_NAME_CHARACTERS: Final = 63

ROLES: Final = {
    messages.ROLE_VIEWER: Role.VIEWER,
    messages.ROLE_SCHEDULER: Role.SCHEDULER,
    messages.ROLE_OPERATOR: Role.OPERATOR,
    messages.ROLE_BRIDGE: Role.BRIDGE,
    messages.ROLE_ADMIN: Role.ADMIN,
}
ROLE_NUMBERS: Final = {role: number for number, role in ROLES.items()}


class AccessServicer(Servicer):
    """Implements federation.v1.Access."""

    def __init__(self, tokens: Tokens, quotas: QuotaService, trail: AuditTrail) -> None:
        self._tokens = tokens
        self._quotas = quotas
        self._trail = trail

    async def CreateToken(
        self, request: messages.CreateTokenRequest, context: Context
    ) -> messages.CreateTokenResponse:
        secret, stored = await self._tokens.create(_new_token(request, str(caller())))
        return messages.CreateTokenResponse(secret=secret.token, token=_message(stored))

    async def ListTokens(
        self, request: messages.ListTokensRequest, context: Context
    ) -> messages.ListTokensResponse:
        limit = page_size_of(request.page_size)
        stored = await self._tokens.list(id_of(request.page_token), limit + 1)
        page = stored[:limit]
        return messages.ListTokensResponse(
            tokens=map(_message, page),
            next_page_token=page_token([page[-1].id]) if len(stored) > limit else "",
        )

    async def RevokeToken(
        self, request: messages.RevokeTokenRequest, context: Context
    ) -> messages.RevokeTokenResponse:
        found = Violations()
        refuse_nul(request, "", found)
        required(request.id, "id", found)
        found.check()
        return messages.RevokeTokenResponse(token=_message(await self._tokens.revoke(request.id)))

    async def WhoAmI(
        self, request: messages.WhoAmIRequest, context: Context
    ) -> messages.WhoAmIResponse:
        asks = caller()
        return messages.WhoAmIResponse(
            actor=str(asks),
            credential_id=asks.credential_id,
            role=ROLE_NUMBERS[asks.role or Role.VIEWER],
            namespaces=asks.scope.namespaces,
            clusters=asks.scope.clusters,
            cluster_labels=dict(asks.scope.cluster_labels),
            calls_per_second=asks.limits.calls_per_second,
            calls_at_once=asks.limits.calls_at_once,
            server_version=RELEASE,
        )

    async def SetQuota(
        self, request: messages.SetQuotaRequest, context: Context
    ) -> messages.SetQuotaResponse:
        found = Violations()
        refuse_nul(request, "", found)
        quota = quota_from_message(request.quota, "quota", found)
        found.check()
        return messages.SetQuotaResponse(quota=quota_to_message(*await self._quotas.set(quota)))

    async def ListQuotas(
        self, request: messages.ListQuotasRequest, context: Context
    ) -> messages.ListQuotasResponse:
        limit = page_size_of(request.page_size)
        after = id_of(request.page_token)
        listed = await self._quotas.list(after, limit + 1, caller().scope)
        page = listed[:limit]
        return messages.ListQuotasResponse(
            quotas=[quota_to_message(*each) for each in page],
            next_page_token=page_token([page[-1][0].namespace]) if len(listed) > limit else "",
        )

    async def ListAudit(
        self, request: messages.ListAuditRequest, context: Context
    ) -> messages.ListAuditResponse:
        found = Violations()
        refuse_nul(request, "", found)
        wanted = AuditFilter(
            since=optional_seconds(request, "since", "since", found),
            until=optional_seconds(request, "until", "until", found),
            credential_id=request.credential_id,
        )
        found.check()
        limit = page_size_of(request.page_size)
        listed = await self._trail.list(wanted, time_place_of(request.page_token), limit + 1)
        records = fitting(map(record_to_message, listed[:limit]))
        last = listed[len(records) - 1] if len(records) < len(listed) else None
        return messages.ListAuditResponse(
            records=records,
            next_page_token=page_token([str(last.at), str(last.id)]) if last else "",
        )

    async def GetAuditChain(
        self, request: messages.GetAuditChainRequest, context: Context
    ) -> messages.GetAuditChainResponse:
        records, head = await self._trail.chain(request.after_seal, CHAIN_PAGE)
        return messages.GetAuditChainResponse(
            records=fitting(map(record_to_message, records)), head=head_to_message(head)
        )


def add_access_to_server(
    tokens: Tokens, quotas: QuotaService, trail: AuditTrail, server: grpc.aio.Server
) -> None:
    add_AccessServicer_to_server(AccessServicer(tokens, quotas, trail), server)


def _new_token(request: messages.CreateTokenRequest, created_by: str) -> NewToken:
    """Raises InvalidRequest."""
    found = Violations()
    refuse_nul(request, "", found)
    required(request.name, "name", found)
    texts.word(request.name, "name", found)
    if len(request.name) > MOST_NAME_CHARACTERS:
        found.add("name", f"has more than {MOST_NAME_CHARACTERS} characters")
    role = ROLES.get(request.role)
    if role is None:
        found.add("role", f"must be one of {', '.join(Role)}")
    scope = scope_of(role, request.namespaces, request.clusters, found)
    scope = labelled(scope, role, request.cluster_labels, found)
    networks = _networks(request.networks, found)
    limits = limits_of(request.calls_per_second, request.calls_at_once, found)
    seconds = DEFAULT_SECONDS
    if request.HasField("ttl_seconds"):
        least, most = LEAST_SECONDS, MOST_SECONDS
        seconds = whole(request.ttl_seconds, "ttlSeconds", found, least=least, most=most)
    found.check()
    return NewToken(
        name=request.name,
        role=role or Role.VIEWER,
        scope=scope,
        networks=networks,
        limits=limits,
        ttl_seconds=seconds,
        created_by=created_by,
    )


def _networks(networks: Iterable[str], found: Violations) -> tuple[str, ...]:
    """As they are written shortest."""
    read = []
    for position, network in enumerate(networks):
        if position == MOST_NAMED:
            found.add("networks", f"are more than {MOST_NAMED}")
            break
        try:
            read.append(str(ipaddress.ip_network(network)))
        except ValueError:
            rule = "must be a network such as 10.0.0.0/8 or 2001:db8::/32"
            found.add(f"networks[{position}]", f"{rule}, not {network[:64]!r}")
    return tuple(read)


def _message(token: StoredToken) -> messages.Token:
    message = messages.Token(
        id=token.id,
        name=token.name,
        role=ROLE_NUMBERS[token.role],
        namespaces=token.scope.namespaces,
        clusters=token.scope.clusters,
        cluster_labels=dict(token.scope.cluster_labels),
        networks=token.networks,
        calls_per_second=token.limits.calls_per_second,
        calls_at_once=token.limits.calls_at_once,
        created_by=token.created_by,
        create_time=timestamp_from_seconds(token.created_at),
        expire_time=timestamp_from_seconds(token.expires_at),
        last_use_address=token.last_used_from,
    )
    if token.revoked_at is not None:
        message.revoke_time.CopyFrom(timestamp_from_seconds(token.revoked_at))
    if token.last_used_at is not None:
        message.last_use_time.CopyFrom(timestamp_from_seconds(token.last_used_at))
    return message
