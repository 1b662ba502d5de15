"""The agent's credential and where it survives the agent.

Must not let anybody else read it, nor leave half of one behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from estimator.unreadable import UNREADABLE
from federation.model.errors import PreconditionFailed
from federation.runtime.tokens import checked_token
from federation.runtime.typed_values import from_json


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer credential. ``ca`` is the one trusted root in PEM, empty over plain text.

    ``expires_at`` is in Unix seconds. ``epoch`` is the newest session that was begun with it.
    """

    cluster: str
    endpoints: tuple[str, ...]
    credential: str
    expires_at: float
    ca: str = ""
    epoch: int = 0


class CredentialStore(Protocol):
    """Keeps one credential, as bytes; ``str`` is how people call it."""

    async def read(self) -> bytes | None:
        """Return None when there is none yet. Raises PreconditionFailed and Unavailable."""
        ...

    async def write(self, content: bytes) -> None:
        """All of it or nothing. Raises PreconditionFailed and Unavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretName:
    """NAMESPACE/NAME."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class CredentialFile:
    """A file for its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return f"credential file {self._path}"

    async def read(self) -> bytes | None:
        return await asyncio.to_thread(self._read)

    async def write(self, content: bytes) -> None:
        await asyncio.to_thread(self._write, content)

    def _read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PreconditionFailed(f"{self} cannot be read: {error}") from error

    def _write(self, content: bytes) -> None:
        path = self._path
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.unlink(missing_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            beside.replace(path)
        except OSError as error:
            raise PreconditionFailed(f"{self} cannot be written: {error}") from error


class KeptCredential:
    """The credential in use; whatever replaces it is stored before it is used."""

    def __init__(self, store: CredentialStore, current: Credential) -> None:
        self._store = store
        self._current = current
        # The newest session before that of this process.
        self._before = current.epoch

    @property
    def credential(self) -> str:
        return self._current.credential

    @property
    def ca(self) -> str:
        return self._current.ca

    async def replace(self, credential: str, expires_at: float) -> None:
        """Raises PreconditionFailed and Unavailable when it could not be stored."""
        await self._keep(
            msgspec.structs.replace(self._current, credential=credential, expires_at=expires_at)
        )

    async def begin_session(self, now: float, endpoints: Collection[str]) -> int:
        """The epoch of a new session: the time in milliseconds, but never one that was before.

        A clock that went back while the agent was away does not make its reports old.
        """
        self._before = self._current.epoch
        epoch = max(int(now * 1000), self._before + 1)
        await self._keep(
            msgspec.structs.replace(self._current, epoch=epoch, endpoints=tuple(endpoints))
        )
        return epoch

    async def forget_session(self, now: float) -> None:
        """The session that was begun last was refused as one of the future: it was none.

        Where it was the clock that said so, the one before it counts again; else that is wrong too.
        """
        former_epoch = self._before if self._before < int(now * 1000) else 0
        await self._keep(msgspec.structs.replace(self._current, epoch=former_epoch))

    async def _keep(self, credential: Credential) -> None:
        await store_credential(self._store, credential)
        self._current = credential


async def load_credential(
    store: CredentialStore, *, cluster: str, ca_sha256: str = ""
) -> Credential | None:
    """Return the credential in the store, None when that holds nothing.

    It belongs to a fleet, wherever that is dialled: to whom the trusted root belongs, when
    ``ca_sha256`` names one. Raises PreconditionFailed when it cannot be read, or is for another
    cluster or another fleet; and Unavailable.
    """
    content = await store.read()
    if content is None:
        return None
    try:
        credential = from_json(content, Credential)
    except UNREADABLE as error:
        raise PreconditionFailed(f"{store} cannot be read: {error}") from error
    if credential.cluster != cluster:
        raise PreconditionFailed(
            f"{store} is for cluster {credential.cluster!r}, not {cluster!r}: name another"
        )
    token = checked_token(credential.credential, str(store))
    credential = msgspec.structs.replace(credential, credential=token)
    fingerprint = _fingerprint(credential.ca)
    if ca_sha256 and fingerprint and fingerprint != ca_sha256:
        raise PreconditionFailed(
            f"{store} is for a control plane whose CA certificate has the SHA-256 {fingerprint}, "
            f"not {ca_sha256}: name another"
        )
    return credential


def _fingerprint(ca: str) -> str:
    """SHA-256 of a certificate in PEM, empty for none."""
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(ca)).hexdigest() if ca else ""
    except ValueError:
        return ""


async def store_credential(store: CredentialStore, credential: Credential) -> None:
    """Raises PreconditionFailed and Unavailable."""
    await store.write(msgspec.json.encode(credential))
