"""A Secret that keeps one value: what an agent in a pod must not lose.

Must not make the Secret: the agent's role names it, and lets it be read and replaced, no more.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from estimator.credential import SecretName
from estimator.kube.client import KubeClient, decoded
from federation.model.errors import (
    Conflict,
    FederationError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)

KEY: Final = "credential.json"
ATTEMPTS: Final = 3
SECRET: Final = "/api/v1/namespaces/{namespace}/secrets/{name}"  # noqa: S105 - a path


class CredentialSecret:
    """Implements ``estimator.credential.CredentialStore`` by a Secret."""

    def __init__(self, secret: SecretName, client: KubeClient) -> None:
        self._secret = secret
        self._client = client

    def __str__(self) -> str:
        return f"secret {self._secret}"

    async def read(self) -> bytes | None:
        encoded = ((await self._get()).get("data") or {}).get(KEY)
        if not encoded:
            return None
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise PreconditionFailed(f"{self}, key {KEY}, is not base64: {error}") from error

    async def write(self, content: bytes) -> None:
        encoded = base64.b64encode(content).decode("ascii")
        for attempt in range(1, ATTEMPTS + 1):
            document = await self._get()
            document["data"] = {**(document.get("data") or {}), KEY: encoded}
            try:
                await self._call("PUT", document)
            except Conflict as error:
                # Somebody else wrote it since it was read: their keys are not ours to drop.
                if attempt == ATTEMPTS:
                    raise Unavailable(f"{self} keeps being changed by others") from error
            else:
                return

    async def _get(self) -> dict[str, Any]:
        return decoded(await self._call("GET"), dict[str, Any])

    async def _call(self, verb: str, body: object = None) -> bytes:
        """Raises Conflict, PreconditionFailed and Unavailable, all of which name the Secret."""
        names = {"namespace": self._secret.namespace, "name": self._secret.name}
        try:
            return await self._client.request(verb, SECRET, body, names=names)
        except Conflict:
            raise
        except NotFound as error:
            raise PreconditionFailed(
                f"{self}: {error.message}; make it: kubectl create secret generic "
                f"{self._secret.name} -n {self._secret.namespace}"
            ) from error
        except Unavailable as error:
            raise Unavailable(f"{self}: {error.message}") from error
        except FederationError as error:
            raise PreconditionFailed(
                f"{self}: {error.message}; the agent needs to get and update it"
            ) from error
