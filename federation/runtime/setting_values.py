"""What a control plane is told at its start, parsed.

Must not know where it was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from federation.runtime.addresses import Address


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class UiAccess(StrEnum):
    """Who may look at the page: on loopback everybody, or nobody without a token; or it is off."""

    AUTO = "auto"
    TOKEN = "token"  # noqa: S105 - the name of a choice
    OFF = "off"


class Accept(StrEnum):
    """Whether a cluster that joins gets replicas at once, or when somebody has accepted it."""

    AUTO = "auto"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, parsed. ``OPTIONS`` says what each is for. Empty and None: not set."""

    listen: Address
    web_listen: Address
    ui: UiAccess
    probe_listen: Address | None
    advertise_endpoint: Address | None
    advertise_ca_url: str
    peer_endpoint: Address | None
    peer_name: str
    data_dir: Path
    database_url: str
    database_wait_seconds: float
    migrate: bool
    postgres_bin: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    insecure: bool
    heartbeat_seconds: float
    report_seconds: float
    renew_credentials_seconds: float
    max_stream_seconds: float
    max_connections: int
    accept: Accept
    scheduler_config: Path | None
    oidc_issuer: str
    oidc_audience: str
    oidc_jwks: str
    oidc_ca: Path | None
    token_review: str
    token_review_audience: str
    token_review_token: Path
    token_review_ca: Path | None
    client_listen: Address | None
    client_ca: Path | None
    role_rules: Path | None
    allow_unproven: bool
    keep_decisions_days: int
    keep_reports_hours: int
    keep_audit_days: int
    preempted_replicas: int
    preempted_replicas_of_namespace: int
    no_failover: bool
    lost_seconds: float
    eviction_seconds: float
    unschedulable_seconds: float
    failover_percent: int
    breaker_clusters: int
    breaker_percent: int
    breaker_by_place: bool
    no_estimating_process: bool
    simulation_workers: int
    simulation_seconds: float
    simulation_steps: int
    simulation_memory_mebibytes: int
    trace_endpoint: str
    trace_ratio: float
    log_format: LogFormat
    log_level: LogLevel
