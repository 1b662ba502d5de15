"""Settings of an agent's scorers: the extender, the binder, and what both score by.

Must not read the environment, the command line or the configuration itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from estimator.control_plane.channel import Endpoint
from federation.model.errors import InvalidRequest, Violation

DEFAULT_NAMESPACE: Final = "fedsched"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """Where kube-scheduler finds the extender. Plain text without a certificate, in PEM.

    With ``client_ca`` only callers with one of its certificates are heard.
    """

    listen: Endpoint
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None

    @property
    def may_bind(self) -> bool:
        """Whether callers are known well enough to bind pods for them."""
        return self.listen.is_loopback or self.client_ca is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """``configuration`` is a file in any of the formats people have; None: MostAllocated."""

    configuration: Path | None = None
    extender: ExtenderSettings | None = None
    binder: bool = False
    binder_namespace: str = DEFAULT_NAMESPACE

    @property
    def placer(self) -> str:
        """Who puts pods on nodes by what was promised, as the control plane is told."""
        if self.binder:
            return "binder"
        return "none" if self.extender is None else "extender"


def scoring_settings(values: dict[str, Any], violations: list[Violation]) -> ScoringSettings:
    """Settings out of parsed options; what is wrong with them is added to ``violations``."""
    violations += _violations(values)
    return ScoringSettings(
        configuration=values["scoring_config"],
        extender=_extender(values, violations) if values["extender_listen"] else None,
        binder=values["binder"],
        binder_namespace=values["binder_namespace"] or DEFAULT_NAMESPACE,
    )


def _extender(values: dict[str, Any], violations: list[Violation]) -> ExtenderSettings | None:
    try:
        listen = Endpoint.parse(values["extender_listen"])
    except InvalidRequest as error:
        violations += [
            Violation(field="--extender-listen", rule=each.rule) for each in error.violations
        ]
        return None
    if not listen.is_loopback and values["extender_tls_cert"] is None:
        rule = f"plain text is served on loopback addresses only, not on {listen}: give "
        violations.append(
            Violation(field="--extender-listen", rule=f"{rule}--extender-tls-cert and its key")
        )
    return ExtenderSettings(
        listen=listen,
        tls_cert=values["extender_tls_cert"],
        tls_key=values["extender_tls_key"],
        client_ca=values["extender_client_ca"],
    )


def _violations(values: dict[str, Any]) -> Iterator[Violation]:
    cert, key = values["extender_tls_cert"], values["extender_tls_key"]
    given = [name for name in ("cert", "key") if values[f"extender_tls_{name}"]]
    if given and not values["extender_listen"]:
        yield Violation(field=f"--extender-tls-{given[0]}", rule="needs --extender-listen")
    if (cert is None) != (key is None):
        rule = "--extender-tls-cert and --extender-tls-key go together"
        yield Violation(field=f"--extender-tls-{given[0]}", rule=rule)
    if values["extender_client_ca"] and cert is None:
        rule = "needs --extender-tls-cert: clients show certificates over TLS only"
        yield Violation(field="--extender-client-ca", rule=rule)
    if values["extender_listen"] and values["report"]:
        yield Violation(field="--extender-listen", rule="needs nodes, which --report has not")
    if values["binder"] and (values["from"] or values["report"]):
        yield Violation(field="--binder", rule="needs a live cluster, not a file")
    deciders = ("endpoint", "extender_listen", "binder")
    if values["scoring_config"] and not any(values[each] for each in deciders):
        rule = "needs --endpoint, --extender-listen or --binder"
        yield Violation(field="--scoring-config", rule=rule)
    if values["scoring_config"] and values["report"]:
        yield Violation(field="--scoring-config", rule="needs nodes, which --report has not")
