"""Being let in: the stored credential or a new one for the join token, and whom to trust.

Must not speak on the stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from estimator.agent.channel import Dialler
from estimator.agent.enrolment import ClusterIdentity, enrol, fetch_pinned_ca
from estimator.credential import (
    Credential,
    CredentialStore,
    KeptCredential,
    load_credential,
    store_credential,
)
from estimator.settings import RunSettings
from federation.model.errors import PermissionRefused, PreconditionFailed
from federation.runtime.tokens import checked_token

logger = logging.getLogger(__name__)


class Joining:
    """How one agent gets, and gets back, its credential."""

    def __init__(
        self,
        settings: RunSettings,
        store: CredentialStore,
        dialler: Dialler,
        *,
        version: str,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._store = store
        self._dialler = dialler
        self._version = version
        self._clock = clock
        self._spent = ""

    @property
    def kept_in(self) -> str:
        """The place of the credential, as people call it."""
        return str(self._store)

    async def has_another_token(self) -> bool:
        """Whether there is a join token that this agent has not joined with yet."""
        try:
            token = await self._token()
        except PreconditionFailed:
            return False
        return bool(token) and token != self._spent

    async def credential(self, identity: ClusterIdentity) -> KeptCredential:
        """The stored credential, or a new one for the join token.

        Raises PreconditionFailed without either, PermissionRefused, and Unavailable.
        """
        stored = await load_credential(
            self._store, cluster=self._settings.cluster, ca_sha256=self._settings.ca_sha256
        )
        if stored is not None and stored.expires_at > self._clock():
            return KeptCredential(self._store, stored)
        if not (self._settings.join_token or self._settings.join_token_file):
            state = "has expired" if stored is not None else "does not exist"
            raise PreconditionFailed(
                f"{self._store} {state}: join with a token (`fedctl join-token create` prints how)"
            )
        return await self.enrol(identity)

    async def enrol(self, identity: ClusterIdentity) -> KeptCredential:
        """A new credential for the join token, stored. Raises as ``credential`` does."""
        settings = self._settings
        if not identity.uid:
            raise PreconditionFailed(
                "joining needs the uid of the namespace kube-system: there is none, or the agent "
                "may not get it (apply the role of deploy/agent)"
            )
        token = await self._token()
        ca_pem = await self.trusted("")
        async with self._dialler.open(ca_pem) as channel:
            enrolled = await enrol(
                channel,
                identity,
                cluster=settings.cluster,
                token=token,
                version=self._version,
            )
        self._spent = token
        credential = Credential(
            cluster=settings.cluster,
            endpoints=settings.addresses,
            credential=enrolled.credential,
            expires_at=enrolled.expires_at,
            ca=ca_pem.decode("ascii") if ca_pem is not None else "",
            epoch=enrolled.last_epoch,
        )
        await store_credential(self._store, credential)
        logger.info("cluster %s joined; %s", settings.cluster, self._store)
        return KeptCredential(self._store, credential)

    async def trusted(self, stored_ca: str) -> bytes | None:
        """PEM of the one root to trust, None for plain text.

        The root kept at joining wins: from then on nothing else is trusted.
        """
        settings = self._settings
        if settings.insecure:
            return None
        if stored_ca:
            return stored_ca.encode("ascii")
        if settings.ca_file is not None:
            return await asyncio.to_thread(_read, settings.ca_file, "CA file")
        if settings.ca_url:
            return await asyncio.to_thread(fetch_pinned_ca, settings.ca_url, settings.ca_sha256)
        raise PermissionRefused(
            "no reason to trust the control plane: give --ca-url and --ca-sha256, --ca-file, "
            "or --insecure on a loopback address"
        )

    async def _token(self) -> str:
        settings = self._settings
        if settings.join_token_file is None:
            if not settings.join_token:
                return ""
            return checked_token(settings.join_token, "the join token")
        content = await asyncio.to_thread(_read, settings.join_token_file, "join token file")
        text = content.decode("ascii", "replace")
        return checked_token(text, f"join token file {settings.join_token_file}")


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PreconditionFailed(f"{what} {path} cannot be read: {error.strerror}") from error
