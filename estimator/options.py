"""The table of an agent's settings: how each is read by itself.

Must not read the environment, the command line or the content of files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from estimator.agent.enrolment import parse_fingerprint
from estimator.credential import SecretName
from federation.codec.ranges import is_cluster_name
from federation.model.pools.values import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET
from federation.runtime.addresses import parse_endpoint
from federation.runtime.options import (
    Option,
    OptionTable,
    number_between,
    one_of,
    parse_switch,
    parse_url,
)
from federation.runtime.setting_values import LogFormat, LogLevel

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
