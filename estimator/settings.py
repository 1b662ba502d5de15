"""Settings of a running agent, checked together.

Must not read the environment, the command line or the clock; a YAML file only when named.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from estimator.control_plane.channel import Endpoint
from estimator.control_plane.trust import parse_fingerprint
from estimator.credential import SecretName
from estimator.estimation.capacity import NodeSet
from estimator.karmada.server import KarmadaSettings
from estimator.scoring_settings import ScoringSettings, scoring_settings
from federation.codec.ranges import is_cluster_name
from federation.model.errors import InvalidRequest, Violation
from federation.model.pools.values import DEFAULT_BUDGET

EXCLUSIVE: Final = (
    ("--from", "--kubeconfig", "--report"),
    ("--credential-file", "--credential-secret"),
    ("--join-token", "--join-token-file"),
)
# An agent must have one of these to do.
WORK: Final = ("endpoint", "karmada_port", "extender_listen", "binder")
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LOOPBACK: Final = "127.0.0.1"
EVERY_ADDRESS: Final = "::"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What ``estimator run`` and ``estimator join`` go by.

    ``ca_sha256`` is lower-case hex. ``dump`` (--from) and ``report`` stand in for a cluster.
    ``health`` is where liveness and readiness are told.
    ``endpoints`` is empty for an agent that only serves or binds, ``karmada`` None for one that
    does not serve Karmada. ``credential_secret`` and ``join_token_file`` come before what they
    stand in for.
    """

    cluster: str
    endpoints: tuple[Endpoint, ...]
    credential_file: Path
    credential_secret: SecretName | None = None
    join_token: str = ""
    join_token_file: Path | None = None
    ca_url: str = ""
    ca_sha256: str = ""
    ca_file: Path | None = None
    insecure: bool = False
    dump: Path | None = None
    kubeconfig: Path | None = None
    report: Path | None = None
    node_set: NodeSet = NodeSet.SCHEDULABLE
    pool_budget: int = DEFAULT_BUDGET
    pool_labels: tuple[str, ...] = ()
    karmada: KarmadaSettings | None = None
    health: Endpoint | None = None
    scoring: ScoringSettings = field(default_factory=ScoringSettings)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The endpoints as they are written."""
        return tuple(map(str, self.endpoints))


def run_settings(values: dict[str, Any], state_directory: Path) -> RunSettings:
    """Settings out of parsed options, by option name. Raises InvalidRequest with all that is wrong.

    The credential file's default lies in ``state_directory``.
    """
    violations: list[Violation] = []
    cluster = values["cluster"] or ""
    if not is_cluster_name(cluster):
        rule = "must be at most 48 lower-case letters, digits and '-'" if cluster else "is required"
        violations.append(Violation(field="--cluster", rule=rule))
    endpoints = []
    for text in values["endpoint"]:
        try:
            endpoints.append(Endpoint.parse(text))
        except InvalidRequest as error:
            violations += error.violations
    if not any(values[name] for name in WORK):
        violations.append(Violation(field="--endpoint", rule="is required"))
    fingerprint = ""
    if values["ca_sha256"]:
        try:
            fingerprint = parse_fingerprint(values["ca_sha256"])
        except InvalidRequest as error:
            violations += error.violations
    violations += _trust_violations(values, endpoints)
    secret = _secret(values, violations)
    violations += _karmada_violations(values)
    health = _health(values, violations)
    scoring = scoring_settings(values, violations)
    for exclusive in EXCLUSIVE:
        given = [flag for flag in exclusive if values[_option(flag)]]
        if len(given) > 1:
            violations.append(Violation(field=", ".join(given), rule="exclude each other"))
    if violations:
        raise InvalidRequest(violations)
    return RunSettings(
        cluster=cluster,
        endpoints=tuple(endpoints),
        credential_file=values["credential_file"] or state_directory / f"agent-{cluster}.json",
        credential_secret=secret,
        join_token=values["join_token"] or "",
        join_token_file=values["join_token_file"],
        ca_url=values["ca_url"] or "",
        ca_sha256=fingerprint,
        ca_file=values["ca_file"],
        insecure=values["insecure"],
        dump=values["from"],
        kubeconfig=values["kubeconfig"],
        report=values["report"],
        node_set=NodeSet.EVERY if values["count_unschedulable_nodes"] else NodeSet.SCHEDULABLE,
        pool_budget=values["pool_budget"] or DEFAULT_BUDGET,
        pool_labels=tuple(filter(None, (values["pool_labels"] or "").split(","))),
        karmada=_karmada(values) if values["karmada_port"] else None,
        health=health,
        scoring=scoring,
    )


def _secret(values: dict[str, Any], violations: list[Violation]) -> SecretName | None:
    text = values["credential_secret"]
    if not text:
        return None
    namespace, _, name = text.partition("/")
    if not (DNS_LABEL.fullmatch(namespace) and DNS_SUBDOMAIN.fullmatch(name)):
        rule = f"must be NAMESPACE/NAME; it is {text!r}"
        violations.append(Violation(field="--credential-secret", rule=rule))
    return SecretName(namespace=namespace, name=name)


def _health(values: dict[str, Any], violations: list[Violation]) -> Endpoint | None:
    if not values["health_listen"]:
        return None
    try:
        return Endpoint.parse(values["health_listen"])
    except InvalidRequest as error:
        violations += [
            Violation(field="--health-listen", rule=each.rule) for each in error.violations
        ]
        return None


def _karmada(values: dict[str, Any]) -> KarmadaSettings:
    """Plain text stays on this machine unless another address is named."""
    tls = values["karmada_tls_cert"] is not None
    return KarmadaSettings(
        host=values["karmada_host"] or (EVERY_ADDRESS if tls else LOOPBACK),
        port=values["karmada_port"],
        tls_cert=values["karmada_tls_cert"],
        tls_key=values["karmada_tls_key"],
        client_ca=values["karmada_client_ca"],
    )


def _karmada_violations(values: dict[str, Any]) -> list[Violation]:
    violations = []
    options = ("--karmada-host", "--karmada-tls-cert", "--karmada-tls-key", "--karmada-client-ca")
    given = [flag for flag in options if values[_option(flag)]]
    if given and not values["karmada_port"]:
        violations.append(Violation(field=given[0], rule="needs --karmada-port"))
    if ("--karmada-tls-cert" in given) != ("--karmada-tls-key" in given):
        rule = "--karmada-tls-cert and --karmada-tls-key go together"
        violations.append(Violation(field="--karmada-tls-cert", rule=rule))
    if "--karmada-client-ca" in given and "--karmada-tls-cert" not in given:
        rule = "needs --karmada-tls-cert: clients show certificates over TLS only"
        violations.append(Violation(field="--karmada-client-ca", rule=rule))
    return violations


def _trust_violations(values: dict[str, Any], endpoints: Sequence[Endpoint]) -> list[Violation]:
    pinned = [flag for flag in ("--ca-url", "--ca-sha256") if values[_option(flag)]]
    violations = []
    if len(pinned) == 1:
        rule = "--ca-url and --ca-sha256 go together: what is fetched is trusted by its fingerprint"
        violations.append(Violation(field=pinned[0], rule=rule))
    if pinned and values["ca_file"]:
        rule = "excludes --ca-url and --ca-sha256: choose one way to trust"
        violations.append(Violation(field="--ca-file", rule=rule))
    if values["insecure"]:
        if pinned or values["ca_file"]:
            rule = "excludes --ca-url, --ca-sha256 and --ca-file: plain text has no certificate"
            violations.append(Violation(field="--insecure", rule=rule))
        violations += [
            Violation(
                field="--insecure",
                rule=f"plain text goes to loopback addresses only, not to {endpoint}",
            )
            for endpoint in endpoints
            if not endpoint.is_loopback
        ]
    return violations


def _option(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def read_config(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Settings by option name from a YAML file. Raises InvalidRequest."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest.of(str(path), f"cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # The library quotes the line, which may hold a token.
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise InvalidRequest.of(f"{path}{where}", "is not YAML that can be read") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidRequest.of(str(path), "must hold settings by name, as cluster: member1")
    unknown = [str(key) for key in document if key not in names]
    if unknown:
        rule = f"unknown settings {', '.join(unknown)}; settings are {', '.join(names)}"
        raise InvalidRequest.of(str(path), rule)
    if isinstance(document.get("endpoint"), str):
        document["endpoint"] = [document["endpoint"]]
    return document
