"""A Secret that keeps one value: what an agent in a pod must not lose.

Must not make the Secret: the agent's role names it, and lets it be read and replaced, no more.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any, Final

import urllib3
from kubernetes.client.exceptions import ApiException

from estimator.credential import SecretName
from estimator.kube.client import REQUEST_TIMEOUT_SECONDS, connect, decoded, request
from federation.model.errors import PreconditionFailed, Unavailable

KEY: Final = "credential.json"
ATTEMPTS: Final = 3
CONFLICT: Final = 409


class CredentialSecret:
    """Implements ``estimator.credential.CredentialStore`` by a Secret; blocks."""

    def __init__(self, secret: SecretName, kubeconfig: Path | None) -> None:
        self._secret = secret
        self._kubeconfig = kubeconfig

    def __str__(self) -> str:
        return f"secret {self._secret}"

    def read(self) -> bytes | None:
        encoded = (self._get().get("data") or {}).get(KEY)
        if not encoded:
            return None
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise PreconditionFailed(f"{self}, key {KEY}, is not base64: {error}") from error

    def write(self, content: bytes) -> None:
        encoded = base64.b64encode(content).decode("ascii")
        for attempt in range(1, ATTEMPTS + 1):
            document = self._get()
            document["data"] = {**(document.get("data") or {}), KEY: encoded}
            try:
                self._call("PUT", document)
            except _Changed as error:
                # Somebody else wrote it since it was read: their keys are not ours to drop.
                if attempt == ATTEMPTS:
                    raise Unavailable(f"{self} keeps being changed by others") from error
            else:
                return

    def _get(self) -> dict[str, Any]:
        return decoded(self._call("GET"), dict[str, Any])

    def _call(self, verb: str, body: object = None) -> bytes:
        try:
            answer = request(
                connect(self._kubeconfig),
                verb,
                "/api/v1/namespaces/{namespace}/secrets/{name}",
                names={"namespace": self._secret.namespace, "name": self._secret.name},
                body=body,
                timeout=REQUEST_TIMEOUT_SECONDS,
            )
            content: bytes = answer.data
        except ApiException as error:
            raise self._refusal(error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"{self}: the API server cannot be reached: {error}") from error
        return content

    def _refusal(self, error: ApiException) -> Exception:
        answer = f"{self}: the API server answers {error.status} {error.reason}"
        if error.status == CONFLICT:
            return _Changed(answer)
        if error.status == 404:
            return PreconditionFailed(
                f"{answer}; make it: kubectl create secret generic {self._secret.name} "
                f"-n {self._secret.namespace}"
            )
        if error.status and 400 <= error.status < 500 and error.status != 429:
            return PreconditionFailed(f"{answer}; the agent needs to get and update it")
        return Unavailable(answer)


class _Changed(Exception):
    """The Secret is not any more what was read."""
