"""Operations on tokens, namespace quotas and the audit.

Must not decide anything: the use cases do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from typing import Final

from federation.codec.audit import head_to_message, record_to_message
from federation.codec.namespace_quotas import quota_from_message, quota_to_message
from federation.codec.ranges import optional_seconds
from federation.codec.scopes import MOST_NAMED, labelled, limits_of, scope_of
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.access import Role
from federation.model.namespace_quotas import NamespaceQuota
from federation.operations.table import OperationCall, operation
from federation.rpc.pages import fitting, id_of, page_size_of, page_token, time_place_of
from federation.services.ports import AuditFilter, NewToken, StoredToken
from federation.v1 import access_pb2 as messages

RELEASE: Final = version("fedsched")
DEFAULT_SECONDS: Final = 90 * 86_400
CHAIN_PAGE: Final = 500

ROLES: Final = {
    messages.ROLE_VIEWER: Role.VIEWER,
    messages.ROLE_SCHEDULER: Role.SCHEDULER,
    messages.ROLE_OPERATOR: Role.OPERATOR,
    messages.ROLE_BRIDGE: Role.BRIDGE,
    messages.ROLE_ADMIN: Role.ADMIN,
}
ROLE_NUMBERS: Final = {role: number for number, role in ROLES.items()}


def _new_token(request: messages.CreateTokenRequest, violations: Violations) -> NewToken:
    """Read a token without its creator."""
    role = ROLES.get(request.role)
    scope = scope_of(role, request.namespaces, request.clusters, violations)
    scope = labelled(scope, role, request.cluster_labels, violations)
    networks = _networks(request.networks, violations)
    limits = limits_of(request.calls_per_second, request.calls_at_once, violations)
    seconds = request.ttl_seconds if request.HasField("ttl_seconds") else DEFAULT_SECONDS
    return NewToken(
        name=request.name,
        role=role or Role.VIEWER,
        scope=scope,
        networks=networks,
        limits=limits,
        ttl_seconds=seconds,
        created_by="",
    )


def _audit_filter(
    request: messages.ListAuditRequest, violations: Violations
) -> tuple[messages.ListAuditRequest, AuditFilter]:
    return request, AuditFilter(
        since=optional_seconds(request, "since", "since", violations),
        until=optional_seconds(request, "until", "until", violations),
        credential_id=request.credential_id,
    )


@operation("Access/CreateToken", read=_new_token)
async def create_token(call: OperationCall, token: NewToken) -> messages.CreateTokenResponse:
    created = replace(token, created_by=str(call.caller))
    secret, stored = await call.services.tokens.create(created)
    return messages.CreateTokenResponse(secret=secret.token, token=_message(stored))


@operation("Access/ListTokens")
async def list_tokens(
    call: OperationCall, request: messages.ListTokensRequest
) -> messages.ListTokensResponse:
    limit = page_size_of(request.page_size)
    stored = await call.services.tokens.list(id_of(request.page_token), limit + 1)
    page = stored[:limit]
    return messages.ListTokensResponse(
        tokens=map(_message, page),
        next_page_token=page_token([page[-1].id]) if len(stored) > limit else "",
    )


@operation("Access/RevokeToken")
async def revoke_token(
    call: OperationCall, request: messages.RevokeTokenRequest
) -> messages.RevokeTokenResponse:
    token = await call.services.tokens.revoke(request.id)
    return messages.RevokeTokenResponse(token=_message(token))


@operation("Access/WhoAmI")
async def who_am_i(call: OperationCall, _: messages.WhoAmIRequest) -> messages.WhoAmIResponse:
    caller = call.caller
    return messages.WhoAmIResponse(
        actor=str(caller),
        credential_id=caller.credential_id,
        role=ROLE_NUMBERS[caller.role or Role.VIEWER],
        namespaces=caller.scope.namespaces,
        clusters=caller.scope.clusters,
        cluster_labels=dict(caller.scope.cluster_labels),
        calls_per_second=caller.limits.calls_per_second,
        calls_at_once=caller.limits.calls_at_once,
        server_version=RELEASE,
    )


@operation(
    "Access/SetQuota",
    read=lambda request, violations: quota_from_message(request.quota, "quota", violations),
)
async def set_quota(call: OperationCall, quota: NamespaceQuota) -> messages.SetQuotaResponse:
    return messages.SetQuotaResponse(quota=quota_to_message(*await call.services.quotas.set(quota)))


@operation("Access/ListQuotas")
async def list_quotas(
    call: OperationCall, request: messages.ListQuotasRequest
) -> messages.ListQuotasResponse:
    limit = page_size_of(request.page_size)
    listed = await call.services.quotas.list(id_of(request.page_token), limit + 1, call.scope)
    page = listed[:limit]
    return messages.ListQuotasResponse(
        quotas=[quota_to_message(*quota_and_use) for quota_and_use in page],
        next_page_token=page_token([page[-1][0].namespace]) if len(listed) > limit else "",
    )


@operation("Access/ListAudit", read=_audit_filter)
async def list_audit(
    call: OperationCall, filtered: tuple[messages.ListAuditRequest, AuditFilter]
) -> messages.ListAuditResponse:
    request, records_filter = filtered
    limit = page_size_of(request.page_size)
    place = time_place_of(request.page_token)
    listed = await call.services.trail.list(records_filter, place, limit + 1)
    records = fitting(map(record_to_message, listed[:limit]))
    last = listed[len(records) - 1] if len(records) < len(listed) else None
    return messages.ListAuditResponse(
        records=records,
        next_page_token=page_token([str(last.at), str(last.id)]) if last else "",
    )


@operation("Access/GetAuditChain")
async def get_audit_chain(
    call: OperationCall, request: messages.GetAuditChainRequest
) -> messages.GetAuditChainResponse:
    records, head = await call.services.trail.chain(request.after_seal, CHAIN_PAGE)
    return messages.GetAuditChainResponse(
        records=fitting(map(record_to_message, records)), head=head_to_message(head)
    )


def _networks(networks: Iterable[str], violations: Violations) -> tuple[str, ...]:
    """Return the networks in their shortest notation."""
    read = []
    for position, network in enumerate(networks):
        if position == MOST_NAMED:
            violations.add("networks", f"are more than {MOST_NAMED}")
            break
        try:
            read.append(str(ipaddress.ip_network(network)))
        except ValueError:
            rule = "must be a network such as 10.0.0.0/8 or 2001:db8::/32"
            violations.add(f"networks[{position}]", f"{rule}, not {network[:64]!r}")
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
