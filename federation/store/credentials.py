"""Statements over join tokens and credentials. Only hashes of secrets come here.

Must not compare secrets: the use cases do, in constant time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Interval,
    Row,
    Text,
    any_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.services.member_ports import StoredCredential, StoredJoinToken
from federation.services.values import PrincipalKind
from federation.store.access_tables import credential, join_token
from federation.store.prepared import Prepared
from federation.store.statements import named
from federation.store.tables import cluster as cluster_table
from federation.store.tables import unix_seconds

# What ended is kept so long, for who looks into the database for why an agent was refused.
ENDED_FOR = timedelta(days=1)

# Held until the end of the transaction, so that two first starts make one admin.
LOCK_ADMIN = text(
    "SELECT /* fedsched:credentials.lock_admin */ "
    "pg_advisory_xact_lock(hashtextextended('fedsched admin credential', 0))"
)


def _is_valid() -> ColumnElement[bool]:
    unexpired = or_(credential.c.expires_at.is_(None), credential.c.expires_at > func.now())
    return credential.c.revoked_at.is_(None) & unexpired


# Whoever guesses asks this again and again.
FIND = Prepared(
    named(
        "credentials.find",
        select(credential, cluster_table.c.name.label("cluster_name"))
        .outerjoin(cluster_table, cluster_table.c.id == credential.c.cluster_id)
        .where(credential.c.id == bindparam("id"), _is_valid()),
    )
)


class CredentialStatements:
    """Implements ``ports.Credentials`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add_join_token(
        self, *, token_id: str, secret_hash: bytes, cluster: str, ttl_seconds: int
    ) -> float:
        statement = (
            insert(join_token)
            .values(
                id=token_id,
                secret_hash=secret_hash,
                cluster_name=cluster,
                expires_at=_in(ttl_seconds),
            )
            .returning(join_token.c.expires_at)
        )
        expires_at = (
            await self._connection.execute(named("credentials.add_join_token", statement))
        ).scalar_one()
        return float(expires_at.timestamp())

    async def spend_join_token(self, token_id: str, cluster: str) -> bytes | None:
        statement = (
            update(join_token)
            .where(
                join_token.c.id == token_id,
                join_token.c.cluster_name == cluster,
                _is_unused(),
            )
            .values(used_at=func.now())
            .returning(join_token.c.secret_hash)
        )
        spent: bytes | None = await self._connection.scalar(
            named("credentials.spend_join_token", statement)
        )
        return spent

    async def add(
        self,
        *,
        credential_id: str,
        secret_hash: bytes,
        kind: PrincipalKind,
        cluster_id: int | None,
        ttl_seconds: int | None,
    ) -> float | None:
        statement = (
            insert(credential)
            .values(
                id=credential_id,
                secret_hash=secret_hash,
                kind=kind.value,
                cluster_id=cluster_id,
                expires_at=None if ttl_seconds is None else _in(ttl_seconds),
            )
            .returning(credential.c.expires_at)
        )
        return unix_seconds(
            (await self._connection.execute(named("credentials.add", statement))).scalar_one()
        )

    async def find(self, credential_id: str) -> StoredCredential | None:
        row = (await FIND.execute(self._connection, {"id": credential_id})).one_or_none()
        if row is None:
            return None
        return StoredCredential(
            id=row.id,
            kind=PrincipalKind(row.kind),
            cluster=row.cluster_name or "",
            secret_hash=row.secret_hash,
            expires_at=unix_seconds(row.expires_at),
        )

    async def settle(self, cluster_id: int, credential_id: str) -> bool:
        serial = await self._connection.scalar(
            named(
                "credentials.serial",
                select(credential.c.serial).where(
                    credential.c.id == credential_id,
                    credential.c.cluster_id == cluster_id,
                    _is_valid(),
                ),
            )
        )
        if serial is None:
            return False
        await self._connection.execute(
            named(
                "credentials.settle",
                update(credential)
                .where(
                    credential.c.cluster_id == cluster_id,
                    credential.c.serial < serial,
                    credential.c.revoked_at.is_(None),
                )
                .values(revoked_at=func.now()),
            )
        )
        return True

    async def ages(self, credential_ids: Sequence[str]) -> Mapping[str, float]:
        seconds = func.extract("epoch", func.now() - credential.c.created_at)
        statement = select(credential.c.id, seconds.label("seconds")).where(
            _is_one_of(credential_ids), _is_valid()
        )
        rows = await self._connection.execute(named("credentials.ages", statement))
        return {row.id: float(row.seconds) for row in rows}

    async def keep_only(self, cluster_id: int, credential_id: str) -> None:
        await self._connection.execute(
            named(
                "credentials.keep_only",
                update(credential)
                .where(
                    credential.c.cluster_id == cluster_id,
                    credential.c.id != credential_id,
                    credential.c.revoked_at.is_(None),
                )
                .values(revoked_at=func.now()),
            )
        )

    async def revoke_all(self, cluster: str) -> int:
        owner = select(cluster_table.c.id).where(cluster_table.c.name == cluster)
        statement = (
            update(credential)
            .where(
                credential.c.cluster_id == owner.scalar_subquery(),
                credential.c.revoked_at.is_(None),
            )
            .values(revoked_at=func.now())
            .returning(credential.c.id)
        )
        return len(
            (await self._connection.execute(named("credentials.revoke_all", statement))).all()
        )

    async def join_tokens(self, after: str, limit: int) -> Sequence[StoredJoinToken]:
        statement = select(join_token).where(join_token.c.id > after, _is_unused())
        rows = await self._connection.execute(
            named("credentials.join_tokens", statement.order_by(join_token.c.id).limit(limit))
        )
        return list(map(_join_token, rows))

    async def cancel_join_token(self, token_id: str) -> StoredJoinToken | None:
        statement = (
            update(join_token)
            .where(join_token.c.id == token_id, _is_unused())
            .values(used_at=func.now())
            .returning(join_token)
        )
        row = (
            await self._connection.execute(named("credentials.cancel_join_token", statement))
        ).one_or_none()
        return None if row is None else _join_token(row)

    async def cancel_join_tokens(self, cluster: str) -> None:
        await self._connection.execute(
            named(
                "credentials.cancel_join_tokens",
                update(join_token)
                .where(join_token.c.cluster_name == cluster, join_token.c.used_at.is_(None))
                .values(used_at=func.now()),
            )
        )

    async def keep_newest(self, cluster_id: int, count: int) -> None:
        newest = (
            select(credential.c.id)
            .where(credential.c.cluster_id == cluster_id, credential.c.revoked_at.is_(None))
            .order_by(credential.c.serial.desc())
            .limit(count)
        )
        await self._connection.execute(
            named(
                "credentials.keep_newest",
                update(credential)
                .where(
                    credential.c.cluster_id == cluster_id,
                    credential.c.revoked_at.is_(None),
                    credential.c.id.not_in(newest),
                )
                .values(revoked_at=func.now()),
            )
        )

    async def discard(self, credential_ids: Sequence[str]) -> None:
        await self._connection.execute(
            named("credentials.discard", delete(credential).where(_is_one_of(credential_ids)))
        )

    async def prune(self, limit: int) -> int:
        ended_at = func.least(credential.c.revoked_at, credential.c.expires_at)
        was_renewed = credential.c.kind == PrincipalKind.REPLICA
        ended = (
            select(credential.c.id)
            .where(
                credential.c.kind != PrincipalKind.ADMIN,
                or_(ended_at <= func.now() - ENDED_FOR, was_renewed & (ended_at <= func.now())),
            )
            .limit(limit)
        )
        statement = delete(credential).where(credential.c.id.in_(ended)).returning(credential.c.id)
        return len((await self._connection.execute(named("credentials.prune", statement))).all())

    async def prune_join_tokens(self, limit: int) -> int:
        ended_at = func.least(join_token.c.used_at, join_token.c.expires_at)
        ended = select(join_token.c.id).where(ended_at <= func.now() - ENDED_FOR).limit(limit)
        statement = delete(join_token).where(join_token.c.id.in_(ended)).returning(join_token.c.id)
        return len(
            (
                await self._connection.execute(named("credentials.prune_join_tokens", statement))
            ).all()
        )

    async def lock_admin(self) -> bool:
        await self._connection.execute(LOCK_ADMIN)
        result = await self._connection.execute(
            named("credentials.find_admin", select(literal(1)).where(_is_admin()).limit(1))
        )
        return result.first() is not None

    async def revoke_admins(self) -> None:
        await self._connection.execute(
            named(
                "credentials.revoke_admins",
                update(credential).where(_is_admin()).values(revoked_at=func.now()),
            )
        )


def _is_unused() -> ColumnElement[bool]:
    return join_token.c.used_at.is_(None) & (join_token.c.expires_at > func.now())


def _join_token(row: Row[Any]) -> StoredJoinToken:
    return StoredJoinToken(
        id=row.id,
        cluster=row.cluster_name,
        created_at=row.created_at.timestamp(),
        expires_at=row.expires_at.timestamp(),
    )


def _is_admin() -> ColumnElement[bool]:
    return (credential.c.kind == PrincipalKind.ADMIN) & credential.c.revoked_at.is_(None)


def _is_one_of(credential_ids: Sequence[str]) -> ColumnElement[bool]:
    return credential.c.id == any_(bindparam("ids", list(credential_ids), type_=ARRAY(Text)))


def _in(seconds: int) -> object:
    """That many seconds from now, by the database's clock."""
    return func.now() + bindparam(None, timedelta(seconds=seconds), type_=Interval)
