"""What the bridge is told by its caller.

Must not read the environment or the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from federation.client import Target
from federation.model.errors import InvalidRequest, PreconditionFailed
from federation.runtime.addresses import Address, parse_address
from federation.runtime.tokens import checked_token


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """``kubeconfig`` is of Karmada's API server, None for a service account.

    ``as_karmada`` answers as karmada-scheduler does where fedsched differs on purpose.
    ``failover`` has the control plane move what runs in clusters that are lost, or that a taint
    empties; else that is Karmada's own.
    """

    target: Target
    kubeconfig: Path | None
    scheduler_name: str
    as_karmada: bool
    failover: bool = False
    lease_name: str = ""
    lease_namespace: str = ""
    health: Address | None = None
    token_file: Path | None = None
    ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that ``target`` was made of."""
        return tuple(each for each in (self.token_file, self.ca) if each is not None)

    def newest_target(self) -> Target:
        """The target by its files as they are now. Raises InvalidRequest, naming the option."""
        token, ca_pem = self.target.token, self.target.ca_pem
        if self.token_file is not None:
            token = _token(self.token_file)
        if self.ca is not None:
            ca_pem = _read(self.ca, "--ca")
        return replace(self.target, token=token, ca_pem=ca_pem)


def settings_of(
    *,
    karmada_kubeconfig: Path | None,
    endpoint: str,
    token_file: Path,
    ca: Path | None,
    insecure: bool,
    health_listen: str | None = None,
    **others: Any,
) -> BridgeSettings:
    """Raises InvalidRequest, naming the option."""
    target = Target(
        endpoint=endpoint,
        token=_token(token_file),
        ca_pem=None if ca is None else _read(ca, "--ca"),
        plaintext=insecure,
    )
    health = None if health_listen is None else _address(health_listen)
    return BridgeSettings(
        target=target,
        kubeconfig=karmada_kubeconfig,
        health=health,
        token_file=token_file,
        ca=ca,
        **others,
    )


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise InvalidRequest.of("--health-listen", str(error)) from error


def _token(path: Path) -> str:
    text = _read(path, "--token-file").decode("ascii", "replace")
    try:
        return checked_token(text, str(path))
    except PreconditionFailed as error:
        raise InvalidRequest.of("--token-file", error.message) from error


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest.of(option, f"cannot read {path}: {error.strerror}") from error
