"""Settings of a running agent, checked together.

Must not read the environment, the command line or the clock: they are passed in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from estimator.agent.enrolment import parse_fingerprint
from estimator.credential import SecretName
from estimator.estimation.capacity import NodeSet
from estimator.kube.access import ServiceAccount
from estimator.servers.karmada import KarmadaSettings
from federation.codec.ranges import is_cluster_name
from federation.model.errors import InvalidRequest, Violation
from federation.model.pools.values import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET
from federation.runtime.addresses import Address, parse_endpoint
from federation.runtime.log_fields import LogFormat, LogLevel
from federation.runtime.options import (
    LoadedOptions,
    Option,
    OptionTable,
    number_between,
    one_of,
    parse_switch,
    parse_url,
)

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
DEFAULT_NAMESPACE: Final = "fedsched"


def _cluster(text: str) -> str:
    if not is_cluster_name(text):
        raise ValueError("must be at most 48 lower-case letters, digits and '-'")
    return text


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        raise ValueError("must be a file, not a directory")
    return path


def _labels(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _secret(text: str) -> SecretName:
    namespace, _, name = text.partition("/")
    if not (DNS_LABEL.fullmatch(namespace) and DNS_SUBDOMAIN.fullmatch(name)):
        raise ValueError("must be NAMESPACE/NAME")
    return SecretName(namespace=namespace, name=name)


OPTIONS = OptionTable(
    "ESTIMATOR_",
    Option(
        name="cluster", parse=_cluster, unset="", help="Name the cluster has in the control plane."
    ),
    Option(
        name="endpoint",
        parse=parse_endpoint,
        many=True,
        help="HOST:PORT of the control plane; may be repeated: they are dialled in turn.",
    ),
    Option(
        name="join_token",
        secret=True,
        unset="",
        help=(
            "Single-use token to join with; not needed again once joined. On the command line all "
            "who list processes read it: use the variable, or the next one."
        ),
    ),
    Option(name="join_token_file", parse=_file, help="A file with that token."),
    Option(name="ca_url", unset="", help="Where the control plane's CA certificate is fetched."),
    Option(
        name="ca_sha256",
        parse=parse_fingerprint,
        unset="",
        help="SHA-256 of that certificate (DER), in hex.",
    ),
    Option(name="ca_file", parse=_file, help="CA certificate in PEM, instead of fetching it."),
    Option(
        name="credential_file",
        parse=_file,
        help=(
            "Where the credential is kept [default: agent-CLUSTER.json in "
            "$XDG_STATE_HOME/fedsched or ~/.local/state/fedsched]."
        ),
    ),
    Option(
        name="credential_secret",
        parse=_secret,
        help="NAMESPACE/NAME of a Secret to keep it in, instead of a file.",
    ),
    Option(
        name="insecure",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Plain text, to a loopback address only.",
    ),
    Option(
        name="from",
        parse=_file,
        help=(
            "A file that 'kubectl get nodes,pods -A -o json' printed, instead of a live cluster; "
            "read again when it changes."
        ),
    ),
    Option(
        name="kubeconfig",
        parse=_file,
        help=(
            "Kubeconfig of the cluster [default: the pod's service account, else the user's "
            "kubeconfig]."
        ),
    ),
    Option(
        name="report",
        parse=_file,
        help="A report, or a list of them to step through, instead of a cluster.",
    ),
    Option(
        name="count_unschedulable_nodes",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Count every node as capacity, as Karmada does.",
    ),
    Option(
        name="pool_budget",
        parse=number_between(MIN_BUDGET, MAX_BUDGET),
        default=str(DEFAULT_BUDGET),
        help="Cells that a report may describe the free nodes by.",
    ),
    Option(
        name="pool_labels",
        parse=_labels,
        unset=(),
        help=(
            "Node labels to tell pools apart by, KEY,KEY, before arch, os, zone and instance type."
        ),
    ),
    Option(
        name="karmada_port",
        parse=number_between(1, 65535),
        help="Serve Karmada's accurate estimator on this port; without --endpoint, only that.",
    ),
    Option(
        name="karmada_host",
        help="Address for that port [default: every address with TLS, else 127.0.0.1].",
    ),
    Option(name="karmada_tls_cert", parse=_file, help="Certificate of that port, in PEM."),
    Option(name="karmada_tls_key", parse=_file, help="Its key, in PEM."),
    Option(
        name="karmada_client_ca",
        parse=_file,
        help="CA in PEM: callers of that port must show a certificate of it.",
    ),
    Option(
        name="health_listen",
        parse=parse_endpoint,
        help="Serve /livez, /readyz and /metrics on HOST:PORT, in plain HTTP.",
    ),
    Option(
        name="trace_endpoint",
        parse=parse_url,
        unset="",
        help="OTLP collector that traces go to: what traced decisions ask of this agent.",
    ),
    Option(name="log_format", parse=one_of(LogFormat), default="text", help="text or json."),
    Option(
        name="log_level",
        parse=one_of(LogLevel),
        default="info",
        help="debug, info, warning or error; SIGUSR1 changes between debug and this.",
    ),
    Option(
        name="scoring_config",
        parse=_file,
        help=(
            "What nodes are chosen by, whoever asks: KubeSchedulerConfiguration, a legacy Policy "
            "or Volcano's scheduler.conf [default: MostAllocated]."
        ),
    ),
    Option(
        name="extender_listen",
        parse=parse_endpoint,
        help="Serve kube-scheduler's HTTP extender on HOST:PORT.",
    ),
    Option(
        name="extender_tls_cert",
        parse=_file,
        help="Certificate of the extender, in PEM; needed beyond loopback.",
    ),
    Option(name="extender_tls_key", parse=_file, help="Its key, in PEM."),
    Option(
        name="extender_client_ca",
        parse=_file,
        help=(
            "CA in PEM: callers must show a certificate of it; to bind they have to, beyond "
            "loopback."
        ),
    ),
    Option(
        name="binder",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Bind pending pods whose schedulerName is fedsched-binpack.",
    ),
    Option(
        name="binder_namespace",
        default=DEFAULT_NAMESPACE,
        help="Where the lease is by which one of several binders binds.",
    ),
)

EXCLUSIVE: Final = (
    ("from", "kubeconfig", "report"),
    ("credential_file", "credential_secret"),
    ("join_token", "join_token_file"),
)
# An agent must have one of these to do.
WORK: Final = ("endpoint", "karmada_port", "extender_listen", "binder")
LOOPBACK: Final = "127.0.0.1"
EVERY_ADDRESS: Final = "::"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """The extender's address for kube-scheduler. Plain text without a certificate, in PEM.

    With ``client_ca`` only callers with one of its certificates are heard.
    """

    listen: Address
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
        """The program that puts pods on nodes by promises, as the control plane is told."""
        if self.binder:
            return "binder"
        return "none" if self.extender is None else "extender"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of ``estimator run`` and ``estimator join``.

    ``ca_sha256`` is lower-case hex. ``dump`` (--from) and ``report`` stand in for a cluster.
    ``health`` is where liveness and readiness are told.
    ``endpoints`` is empty for an agent that only serves or binds, ``karmada`` None for one that
    does not serve Karmada. ``credential_secret`` and ``join_token_file`` come before what they
    stand in for. ``clock`` tells Unix seconds, ``monotonic`` seconds that never go back.
    """

    cluster: str
    endpoints: tuple[Address, ...]
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
    account: ServiceAccount | None = None
    report: Path | None = None
    node_set: NodeSet = NodeSet.SCHEDULABLE
    pool_budget: int = DEFAULT_BUDGET
    pool_labels: tuple[str, ...] = ()
    karmada: KarmadaSettings | None = None
    health: Address | None = None
    trace_endpoint: str = ""
    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    @property
    def addresses(self) -> tuple[str, ...]:
        """The endpoints as they are written."""
        return tuple(map(str, self.endpoints))


def run_settings(
    loaded: LoadedOptions, state_directory: Path, account: ServiceAccount | None = None
) -> RunSettings:
    """Settings out of the agent's options. Raises InvalidRequest with all that is wrong.

    The credential file's default lies in ``state_directory``. ``account`` is the pod's.
    """
    violations = [*loaded.violations, *_violations(loaded)]
    if violations:
        raise InvalidRequest(violations)
    values = loaded.values
    node_set = NodeSet.EVERY if values["count_unschedulable_nodes"] else NodeSet.SCHEDULABLE
    return RunSettings(
        cluster=values["cluster"],
        endpoints=values["endpoint"],
        credential_file=values["credential_file"]
        or state_directory / f"agent-{values['cluster']}.json",
        credential_secret=values["credential_secret"],
        join_token=values["join_token"],
        join_token_file=values["join_token_file"],
        ca_url=values["ca_url"],
        ca_sha256=values["ca_sha256"],
        ca_file=values["ca_file"],
        insecure=values["insecure"],
        dump=values["from"],
        kubeconfig=values["kubeconfig"],
        account=account,
        report=values["report"],
        node_set=node_set,
        pool_budget=values["pool_budget"],
        pool_labels=values["pool_labels"],
        karmada=_karmada(loaded),
        health=values["health_listen"],
        trace_endpoint=values["trace_endpoint"],
        log_format=values["log_format"],
        log_level=values["log_level"],
        scoring=ScoringSettings(
            configuration=values["scoring_config"],
            extender=_extender(loaded),
            binder=values["binder"],
            binder_namespace=values["binder_namespace"],
        ),
    )


def shown_to_all(loaded: LoadedOptions) -> Sequence[str]:
    """Return warnings of secrets on the command line, which all who list processes read."""
    if loaded.origins["join_token"].layer != "flag":
        return []
    warning = "--join-token: whoever may list this machine's processes reads it"
    return [f"{warning}: give it in ESTIMATOR_JOIN_TOKEN, or in the file of --join-token-file"]


def _karmada(loaded: LoadedOptions) -> KarmadaSettings | None:
    """Plain text stays on this machine unless another address is named."""
    values = loaded.values
    if not values["karmada_port"]:
        return None
    tls = values["karmada_tls_cert"] is not None
    return KarmadaSettings(
        host=values["karmada_host"] or (EVERY_ADDRESS if tls else LOOPBACK),
        port=values["karmada_port"],
        tls_cert=values["karmada_tls_cert"],
        tls_key=values["karmada_tls_key"],
        client_ca=values["karmada_client_ca"],
    )


def _extender(loaded: LoadedOptions) -> ExtenderSettings | None:
    values = loaded.values
    if not values["extender_listen"]:
        return None
    return ExtenderSettings(
        listen=values["extender_listen"],
        tls_cert=values["extender_tls_cert"],
        tls_key=values["extender_tls_key"],
        client_ca=values["extender_client_ca"],
    )


def _violations(loaded: LoadedOptions) -> Iterator[Violation]:
    """The rules between settings that are broken."""
    if not loaded.is_given("cluster"):
        yield Violation(field="--cluster", rule="is required")
    if not any(map(loaded.is_given, WORK)):
        yield Violation(field="--endpoint", rule="is required")
    for exclusive in EXCLUSIVE:
        names = [loaded.name_of(name) for name in exclusive if loaded.is_given(name)]
        if len(names) > 1:
            yield Violation(field=", ".join(names), rule="exclude each other")
    yield from _trust_violations(loaded)
    yield from _tls_violations(loaded, "karmada", "karmada_port")
    yield from _tls_violations(loaded, "extender", "extender_listen")
    if loaded.is_given("karmada_host") and not loaded.is_given("karmada_port"):
        yield Violation(field=loaded.name_of("karmada_host"), rule="needs --karmada-port")
    yield from _scoring_violations(loaded)


def _trust_violations(loaded: LoadedOptions) -> Iterator[Violation]:
    pinned = [name for name in ("ca_url", "ca_sha256") if loaded.is_given(name)]
    if len(pinned) == 1:
        rule = "--ca-url and --ca-sha256 go together: what is fetched is trusted by its fingerprint"
        yield Violation(field=loaded.name_of(pinned[0]), rule=rule)
    if pinned and loaded.is_given("ca_file"):
        rule = "excludes --ca-url and --ca-sha256: choose one way to trust"
        yield Violation(field=loaded.name_of("ca_file"), rule=rule)
    if loaded.values["insecure"]:
        insecure = loaded.name_of("insecure")
        if pinned or loaded.is_given("ca_file"):
            rule = "excludes --ca-url, --ca-sha256 and --ca-file: plain text has no certificate"
            yield Violation(field=insecure, rule=rule)
        for endpoint in loaded.values["endpoint"]:
            if not endpoint.is_loopback:
                rule = f"plain text goes to loopback addresses only, not to {endpoint}"
                yield Violation(field=insecure, rule=rule)


def _tls_violations(loaded: LoadedOptions, server: str, listen: str) -> Iterator[Violation]:
    """Yield violations of one server's settings, which begin with its name."""
    cert, key, client_ca = (f"{server}_{name}" for name in ("tls_cert", "tls_key", "client_ca"))
    flag = {name: loaded.options[name].flag for name in (cert, key, listen)}
    names = [name for name in (cert, key) if loaded.is_given(name)]
    if names and not loaded.is_given(listen):
        yield Violation(field=loaded.name_of(names[0]), rule=f"needs {flag[listen]}")
    if len(names) == 1:
        rule = f"{flag[cert]} and {flag[key]} go together"
        yield Violation(field=loaded.name_of(names[0]), rule=rule)
    if loaded.is_given(client_ca) and cert not in names:
        rule = f"needs {flag[cert]}: clients show certificates over TLS only"
        yield Violation(field=loaded.name_of(client_ca), rule=rule)


def _scoring_violations(loaded: LoadedOptions) -> Iterator[Violation]:
    names = {name for name in loaded.options if loaded.is_given(name)}
    listen = loaded.values["extender_listen"]
    if listen and not listen.is_loopback and "extender_tls_cert" not in names:
        rule = (
            f"plain text is served on loopback addresses only, not on {listen}: give "
            "--extender-tls-cert and its key"
        )
        yield Violation(field=loaded.name_of("extender_listen"), rule=rule)
    if "binder" in names and names & {"from", "report"}:
        rule = "needs a live cluster, not a file"
        yield Violation(field=loaded.name_of("binder"), rule=rule)
    if "scoring_config" in names and not names & {"endpoint", "extender_listen", "binder"}:
        rule = "needs --endpoint, --extender-listen or --binder"
        yield Violation(field=loaded.name_of("scoring_config"), rule=rule)
    for name in ("extender_listen", "scoring_config"):
        if name in names and "report" in names:
            rule = "needs nodes, which --report has not"
            yield Violation(field=loaded.name_of(name), rule=rule)
