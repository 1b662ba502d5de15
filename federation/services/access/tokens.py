"""Tokens of people and programs: made, listed, revoked.

Must not tell callers by them: ``members.identity`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from federation.model.errors import LimitExceeded, NotFound
from federation.services.ports import NewToken, Store, StoredToken
from federation.services.secrets import Secret, make_token

MAX_TOKENS: Final = 10_000


class Tokens:
    """``ended`` is told the id of a token once its revocation is committed."""

    def __init__(self, store: Store, ended: Callable[[str], None]) -> None:
        self._store = store
        self._ended = ended

    async def create(self, token: NewToken) -> tuple[Secret, StoredToken]:
        """The secret, which is nowhere else, and what is kept. Raises LimitExceeded."""
        secret = make_token()
        async with self._store.transaction() as tx:
            if await tx.tokens.count() >= MAX_TOKENS:
                raise LimitExceeded(f"{MAX_TOKENS} tokens are valid: revoke some of them first")
            stored = await tx.tokens.add(secret.id, secret.hash, token)
        return secret, stored

    async def list(self, after: str, limit: int) -> Sequence[StoredToken]:
        """By ascending id, those that come after ``after``."""
        async with self._store.reading() as read:
            return await read.tokens.page(after, limit)

    async def revoke(self, token_id: str) -> StoredToken:
        """Raises NotFound."""
        async with self._store.transaction() as tx:
            stored = await tx.tokens.revoke(token_id)
            if stored is None:
                raise NotFound(f"There is no token {token_id!r}.")
        self._ended(token_id)
        return stored
