"""Every setting of a control plane: its flag, its variable, its default, what it is for.

Must not read any of them from anywhere.
"""

from __future__ import annotations

from pathlib import Path

from federation.runtime.addresses import parse_address
from federation.runtime.database_url import parse_database_url
from federation.runtime.options import (
    Option,
    OptionTable,
    number_between,
    one_of,
    parse_switch,
    parse_url,
    part_of_one,
    seconds_between,
)
from federation.runtime.setting_values import Accept, LogFormat, LogLevel, UiAccess

# Where Kubernetes puts it in every pod.
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
OPTIONS = OptionTable(
    "FEDERATION_",
    Option(
        name="listen",
        parse=parse_address,
        default="127.0.0.1:7443",
        help="HOST:PORT of the gRPC API.",
    ),
    Option(
        name="web_listen",
        parse=parse_address,
        default="127.0.0.1:7080",
        help="HOST:PORT of plain HTTP: the page at /ui/, /ca.pem, /healthz, /readyz.",
    ),
    Option(
        name="ui",
        parse=one_of(UiAccess),
        default="auto",
        help="Who may look at the page: auto (on loopback all, else with a token), token, off.",
    ),
    Option(
        name="probe_listen",
        parse=parse_address,
        help="HOST:PORT of /healthz and /readyz alone, for those who watch over this process.",
    ),
    Option(
        name="advertise_endpoint",
        parse=parse_address,
        help="HOST:PORT that agents dial, when it is not the one listened on.",
    ),
    Option(
        name="advertise_ca_url",
        parse=parse_url,
        unset="",
        help="Where agents fetch the CA certificate, when it is not /ca.pem of the web address.",
    ),
    Option(
        name="peer_endpoint",
        parse=parse_address,
        help="HOST:PORT at which other control planes reach this one alone; else as agents do.",
    ),
    Option(
        name="peer_name",
        unset="",
        help="The name in the other control planes' certificates, when it is not their host.",
    ),
    Option(
        name="data_dir",
        parse=Path,
        help="Directory of the admin token and of the embedded database. Root's database lies in a "
        "folder beside it or under /var/tmp: postgres/database-location.json in it says where.",
    ),
    Option(
        name="database_url",
        parse=parse_database_url,
        unset="",
        secret=True,
        help="postgresql://USER:PASSWORD@HOST:PORT/DATABASE; empty: an embedded PostgreSQL.",
    ),
    Option(
        name="database_wait_seconds",
        parse=seconds_between(0, 3600),
        default="30",
        help="How long a start waits for the database.",
    ),
    Option(
        name="migrate",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Bring the schema of a database of your own up to date at start.",
    ),
    Option(
        name="postgres_bin",
        parse=Path,
        help="Directory with the postgres and initdb programs for the embedded PostgreSQL.",
    ),
    Option(name="tls_cert", parse=Path, help="Server certificate, PEM."),
    Option(name="tls_key", parse=Path, help="Private key of the certificate, PEM."),
    Option(name="tls_ca", parse=Path, help="CA that agents and clients trust, PEM."),
    Option(
        name="insecure",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Serve plain text; on a loopback address only.",
    ),
    Option(
        name="heartbeat_seconds",
        parse=seconds_between(0.1, 3600),
        default="10",
        help="How often agents say that they are there.",
    ),
    Option(
        name="report_seconds",
        parse=seconds_between(0.1, 3600),
        default="10",
        help="How often agents look whether there is something new to report.",
    ),
    Option(
        name="renew_credentials_seconds",
        parse=seconds_between(1, 2_419_200),
        default="86400",
        help="How old an agent's credential may get before the agent is handed another.",
    ),
    Option(
        name="max_stream_seconds",
        parse=seconds_between(0, 2_419_200),
        default="3600",
        help="How long an agent's stream may last before it has to dial again; 0: for ever.",
    ),
    Option(
        name="max_connections",
        parse=number_between(1, 1_000_000),
        default="20000",
        help="How many connections the API has at once; fewer where the limit of open files is.",
    ),
    Option(
        name="accept",
        parse=one_of(Accept),
        default="auto",
        help="auto, or manual: a cluster that joins is held until an operator accepts it.",
    ),
    Option(
        name="scheduler_config",
        parse=Path,
        help="YAML file of scheduler profiles; without one there is default-scheduler alone.",
    ),
    Option(
        name="oidc_issuer",
        parse=parse_url,
        unset="",
        help="Issuer of JWTs that callers may come with in place of a token: its URL.",
    ),
    Option(
        name="oidc_audience",
        unset="",
        help="Whom the issuer has to have made them for: a client id, or a name of your own.",
    ),
    Option(
        name="oidc_jwks",
        unset="",
        help="URL or file of the issuer's keys, when its discovery document is not to be asked.",
    ),
    Option(
        name="oidc_ca",
        parse=Path,
        help="Certificate authority of the issuer, PEM; else the system's.",
    ),
    Option(
        name="token_review",
        parse=parse_url,
        unset="",
        help="API server that tells whose service-account tokens are: https://kubernetes.default.svc",
    ),
    Option(
        name="token_review_audience",
        unset="",
        help="Whom these tokens have to be made for: a name of your own.",
    ),
    Option(
        name="token_review_token",
        parse=Path,
        default=f"{SERVICE_ACCOUNT}/token",
        help="File with the token that asks there; it is read each time.",
    ),
    Option(
        name="token_review_ca",
        parse=Path,
        default=f"{SERVICE_ACCOUNT}/ca.crt",
        help="Certificate authority of that API server, PEM.",
    ),
    Option(
        name="client_listen",
        parse=parse_address,
        help="HOST:PORT of the gRPC API for callers with client certificates alone.",
    ),
    Option(
        name="client_ca",
        parse=Path,
        help="Certificate authority of the callers' certificates, PEM; one of their own.",
    ),
    Option(
        name="role_rules",
        parse=Path,
        help="YAML file of rules that give callers without a token of ours their roles.",
    ),
    Option(
        name="allow_unproven",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Reserve also where nothing proves that there is room, such as without node pools.",
    ),
    Option(
        name="keep_decisions_days",
        parse=number_between(0, 36_500),
        default="30",
        help="How long decisions are kept that no binding stands on any more; 0: for ever.",
    ),
    Option(
        name="keep_reports_hours",
        parse=number_between(0, 24 * 36_500),
        default="24",
        help="How long reports are kept, one a minute of each cluster; 0: none is.",
    ),
    Option(
        name="keep_audit_days",
        parse=number_between(0, 36_500),
        default="90",
        help="How long records of changes and refusals are kept; 0: for ever.",
    ),
    Option(
        name="preempted_replicas",
        parse=number_between(0, 10**9),
        default="1000",
        help="How many replicas may be preempted within any minute, in all; 0: none.",
    ),
    Option(
        name="preempted_replicas_of_namespace",
        parse=number_between(0, 10**9),
        default="100",
        help="How many replicas of one namespace may be preempted within any minute.",
    ),
    Option(
        name="no_failover",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Move nothing off clusters by itself; say it to all control planes of a fleet.",
    ),
    Option(
        name="lost_seconds",
        parse=seconds_between(1, 2_419_200),
        default="300",
        help="How long a cluster has to be silent to be lost: then its bindings are moved.",
    ),
    Option(
        name="eviction_seconds",
        parse=seconds_between(1, 2_419_200),
        default="600",
        help="How long a step of a plan may take to run, a preempted pod to leave, and what people "
        "taint away to be replaced.",
    ),
    Option(
        name="unschedulable_seconds",
        parse=seconds_between(0, 2_419_200),
        default="300",
        help="How long pods may be on no node until their replicas go elsewhere; 0: for ever.",
    ),
    Option(
        name="failover_percent",
        parse=number_between(1, 100),
        default="10",
        help="How much of the fleet's replicas may be moved in a minute; or 60 bindings.",
    ),
    Option(
        name="breaker_clusters",
        parse=number_between(1, 1_000_000),
        default="5",
        help="How many clusters have to fall silent within a minute for failover to freeze.",
    ),
    Option(
        name="breaker_percent",
        parse=number_between(1, 100),
        default="30",
        help="And more than how much of the fleet that has to be; below half of it failover thaws.",
    ),
    Option(
        name="breaker_by_place",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Freeze a region, provider or what one control plane heard alone by the same limits.",
    ),
    Option(
        name="no_estimating_process",
        parse=parse_switch,
        default="false",
        switch=True,
        help="Estimate in threads only: without the process that fleets of 250 clusters have.",
    ),
    Option(
        name="simulation_workers",
        parse=number_between(1, 64),
        default="1",
        help="How many processes simulate at once; they start when there is something to simulate.",
    ),
    Option(
        name="simulation_seconds",
        parse=seconds_between(0.1, 3600),
        default="30",
        help="How long a simulation may take; it ends with its caller's own deadline before.",
    ),
    Option(
        name="simulation_steps",
        parse=number_between(1, 10**15),
        default="50000000",
        help="How much one simulation may ask for: parts of its bindings times its clusters.",
    ),
    Option(
        name="simulation_memory_mebibytes",
        parse=number_between(64, 1 << 20),
        default="1024",
        help="How much memory a process that simulates may take.",
    ),
    Option(
        name="trace_endpoint",
        parse=parse_url,
        unset="",
        help="OTLP collector that traces go to, such as http://127.0.0.1:4318; empty: none are.",
    ),
    Option(
        name="trace_ratio",
        parse=part_of_one,
        default="0.1",
        help="Which part of the traces that begin here are sent; a caller's own choice stands.",
    ),
    Option(name="log_format", parse=one_of(LogFormat), default="text", help="text or json."),
    Option(
        name="log_level",
        parse=one_of(LogLevel),
        default="info",
        help="debug, info, warning or error; SIGUSR1 changes between debug and this.",
    ),
)
