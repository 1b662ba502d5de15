"""Settings of the control plane: each is declared once, with its parser, default and help.

Must not read the process environment, the command line or files: all three are passed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from federation.model.errors import InvalidRequest, Violation
from federation.runtime.addresses import Address, is_secure_url, parse_address
from federation.runtime.database_url import MASK, masked_url, parse_database_url
from federation.runtime.log_fields import LogFormat, LogLevel
from federation.runtime.options import (
    LoadedOptions,
    OptionTable,
    number_between,
    one_of,
    parse_url,
    part_of_one,
    seconds_between,
    setting,
    switch,
)

# Kubernetes puts it into every pod.
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MAX_DAYS: Final = 36_500
MONTH_SECONDS: Final = 2_419_200


class UiAccess(StrEnum):
    """Access to the page: on loopback for all, or for tokens alone; or it is off."""

    AUTO = "auto"
    TOKEN = "token"  # noqa: S105 - the name of a choice
    OFF = "off"


class Accept(StrEnum):
    """Whether a cluster that joins gets replicas at once, or when somebody has accepted it."""

    AUTO = "auto"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, parsed. Empty and None: not set."""

    listen: Address = setting("HOST:PORT of the gRPC API.", parse_address, "127.0.0.1:7443")
    web_listen: Address = setting(
        "HOST:PORT of plain HTTP: the page at /ui/, /ca.pem, /healthz, /readyz.",
        parse_address,
        "127.0.0.1:7080",
    )
    ui: UiAccess = setting(
        "Who may look at the page: auto (on loopback all, else with a token), token, off.",
        one_of(UiAccess),
        "auto",
    )
    probe_listen: Address | None = setting(
        "HOST:PORT of /healthz and /readyz alone, for those who watch over this process.",
        parse_address,
    )
    advertise_endpoint: Address | None = setting(
        "HOST:PORT that agents dial, when it is not the one listened on.", parse_address
    )
    advertise_ca_url: str = setting(
        "Where agents fetch the CA certificate, when it is not /ca.pem of the web address.",
        parse_url,
        unset="",
    )
    peer_endpoint: Address | None = setting(
        "HOST:PORT at which other control planes reach this one alone; else as agents do.",
        parse_address,
    )
    peer_name: str = setting(
        "The name in the other control planes' certificates, when it is not their host.", unset=""
    )
    data_dir: Path = setting(
        "Directory of the admin token and of the embedded database. Root's database lies in a "
        "folder beside it or under /var/tmp: postgres/database-location.json in it says where.",
        Path,
    )
    database_url: str = setting(
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE; empty: an embedded PostgreSQL.",
        parse_database_url,
        unset="",
        secret=True,
    )
    database_wait_seconds: float = setting(
        "How long a start waits for the database.", seconds_between(0, 3600), "30"
    )
    migrate: bool = switch("Bring the schema of a database of your own up to date at start.")
    postgres_bin: Path | None = setting(
        "Directory with the postgres and initdb programs for the embedded PostgreSQL.", Path
    )
    tls_cert: Path | None = setting("Server certificate, PEM.", Path)
    tls_key: Path | None = setting("Private key of the certificate, PEM.", Path)
    tls_ca: Path | None = setting("CA that agents and clients trust, PEM.", Path)
    insecure: bool = switch("Serve plain text; on a loopback address only.")
    heartbeat_seconds: float = setting(
        "How often agents say that they are there.", seconds_between(0.1, 3600), "10"
    )
    report_seconds: float = setting(
        "How often agents look whether there is something new to report.",
        seconds_between(0.1, 3600),
        "10",
    )
    renew_credentials_seconds: float = setting(
        "How old an agent's credential may get before the agent is handed another.",
        seconds_between(1, MONTH_SECONDS),
        "86400",
    )
    max_stream_seconds: float = setting(
        "How long an agent's stream may last before it has to dial again; 0: for ever.",
        seconds_between(0, MONTH_SECONDS),
        "3600",
    )
    max_connections: int = setting(
        "How many connections the API has at once; fewer where the limit of open files is.",
        number_between(1, 1_000_000),
        "20000",
    )
    accept: Accept = setting(
        "auto, or manual: a cluster that joins is held until an operator accepts it.",
        one_of(Accept),
        "auto",
    )
    scheduler_config: Path | None = setting(
        "YAML file of scheduler profiles; without one there is default-scheduler alone.", Path
    )
    oidc_issuer: str = setting(
        "Issuer of JWTs that callers may come with in place of a token: its URL.",
        parse_url,
        unset="",
    )
    oidc_audience: str = setting(
        "Whom the issuer has to have made them for: a client id, or a name of your own.", unset=""
    )
    oidc_jwks: str = setting(
        "URL or file of the issuer's keys, when its discovery document is not to be asked.",
        unset="",
    )
    oidc_ca: Path | None = setting(
        "Certificate authority of the issuer, PEM; else the system's.", Path
    )
    token_review: str = setting(
        "API server that tells whose service-account tokens are: https://kubernetes.default.svc",
        parse_url,
        unset="",
    )
    token_review_audience: str = setting(
        "Whom these tokens have to be made for: a name of your own.", unset=""
    )
    token_review_token: Path = setting(
        "File with the token that asks there; it is read each time.",
        Path,
        f"{SERVICE_ACCOUNT}/token",
    )
    token_review_ca: Path | None = setting(
        "Certificate authority of that API server, PEM.", Path, f"{SERVICE_ACCOUNT}/ca.crt"
    )
    client_listen: Address | None = setting(
        "HOST:PORT of the gRPC API for callers with client certificates alone.", parse_address
    )
    client_ca: Path | None = setting(
        "Certificate authority of the callers' certificates, PEM; one of their own.", Path
    )
    role_rules: Path | None = setting(
        "YAML file of rules that give callers without a token of ours their roles.", Path
    )
    allow_unproven: bool = switch(
        "Reserve also where nothing proves that there is room, such as without node pools."
    )
    keep_decisions_days: int = setting(
        "How long decisions are kept that no binding stands on any more; 0: for ever.",
        number_between(0, MAX_DAYS),
        "30",
    )
    keep_reports_hours: int = setting(
        "How long reports are kept, one a minute of each cluster; 0: none is.",
        number_between(0, 24 * MAX_DAYS),
        "24",
    )
    keep_audit_days: int = setting(
        "How long records of changes and refusals are kept; 0: for ever.",
        number_between(0, MAX_DAYS),
        "90",
    )
    preempted_replicas: int = setting(
        "How many replicas may be preempted within any minute, in all; 0: none.",
        number_between(0, 10**9),
        "1000",
    )
    preempted_replicas_of_namespace: int = setting(
        "How many replicas of one namespace may be preempted within any minute.",
        number_between(0, 10**9),
        "100",
    )
    no_failover: bool = switch(
        "Move nothing off clusters by itself; say it to all control planes of a fleet."
    )
    lost_seconds: float = setting(
        "How long a cluster has to be silent to be lost: then its bindings are moved.",
        seconds_between(1, MONTH_SECONDS),
        "300",
    )
    eviction_seconds: float = setting(
        "How long a step of a plan may take to run, a preempted pod to leave, and what people "
        "taint away to be replaced.",
        seconds_between(1, MONTH_SECONDS),
        "600",
    )
    unschedulable_seconds: float = setting(
        "How long pods may be on no node until their replicas go elsewhere; 0: for ever.",
        seconds_between(0, MONTH_SECONDS),
        "300",
    )
    failover_percent: int = setting(
        "How much of the fleet's replicas may be moved in a minute; or 60 bindings.",
        number_between(1, 100),
        "10",
    )
    breaker_clusters: int = setting(
        "How many clusters have to fall silent within a minute for failover to freeze.",
        number_between(1, 1_000_000),
        "5",
    )
    breaker_percent: int = setting(
        "And more than how much of the fleet that has to be; below half of it failover thaws.",
        number_between(1, 100),
        "30",
    )
    breaker_by_place: bool = switch(
        "Freeze a region, provider or what one control plane heard alone by the same limits."
    )
    no_estimating_process: bool = switch(
        "Estimate in threads only: without the process that fleets of 250 clusters have."
    )
    simulation_workers: int = setting(
        "How many processes simulate at once; they start when there is something to simulate.",
        number_between(1, 64),
        "1",
    )
    simulation_seconds: float = setting(
        "How long a simulation may take; it ends with its caller's own deadline before.",
        seconds_between(0.1, 3600),
        "30",
    )
    simulation_steps: int = setting(
        "How much one simulation may ask for: parts of its bindings times its clusters.",
        number_between(1, 10**15),
        "50000000",
    )
    simulation_memory_mebibytes: int = setting(
        "How much memory a process that simulates may take.", number_between(64, 1 << 20), "1024"
    )
    trace_endpoint: str = setting(
        "OTLP collector that traces go to, such as http://127.0.0.1:4318; empty: none are.",
        parse_url,
        unset="",
    )
    trace_ratio: float = setting(
        "Which part of the traces that begin here are sent; a caller's own choice stands.",
        part_of_one,
        "0.1",
    )
    log_format: LogFormat = setting("text or json.", one_of(LogFormat), "text")
    log_level: LogLevel = setting(
        "debug, info, warning or error; SIGUSR1 changes between debug and this.",
        one_of(LogLevel),
        "info",
    )


OPTIONS: Final = OptionTable.of("FEDERATION_", Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, and where each came from."""

    settings: Settings
    options: LoadedOptions

    @property
    def warnings(self) -> Sequence[str]:
        return self.options.warnings

    def name_of(self, setting: str) -> str:
        """The setting as its author wrote it, the flag where nobody did: for error messages."""
        return self.options.name_of(setting)


def load_settings(
    *,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    document: Mapping[str, object],
    source: str,
    data_dir: Path,
) -> LoadedSettings:
    """As ``OptionTable.load``; ``data_dir`` is the default of that setting.

    Raises InvalidRequest with everything that is wrong.
    """
    loaded = OPTIONS.load(flags=flags, environment=environment, document=document, source=source)
    if loaded.violations:
        raise InvalidRequest(loaded.violations, reason="BAD_SETTINGS")
    values = {**loaded.values, "data_dir": loaded.values["data_dir"] or data_dir}
    warnings = [*loaded.warnings, *_shown_to_all(loaded)]
    options = replace(loaded, values=values, warnings=warnings)
    return LoadedSettings(settings=Settings(**values), options=options)


def _shown_to_all(loaded: LoadedOptions) -> Sequence[str]:
    """What stands on the command line is read by who may list processes."""
    url = loaded.values["database_url"]
    if loaded.origins["database_url"].layer != "flag" or MASK not in masked_url(url):
        return []
    told = "--database-url: whoever may list this machine's processes reads the password"
    return [f"{told}: give it in FEDERATION_DATABASE_URL, or in the file of --config"]


def check_serving(loaded: LoadedSettings) -> None:
    """The rules between settings that hold for a server. Raises InvalidRequest with all broken."""
    settings = loaded.settings
    tls = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    missing = [loaded.options.options[name].flag for name, path in tls.items() if path is None]
    violations = []
    if settings.insecure:
        if len(missing) < len(tls):
            rule = "excludes --tls-cert, --tls-key and --tls-ca: choose one"
            violations.append(Violation(field=loaded.name_of("insecure"), rule=rule))
        if not settings.listen.is_loopback:
            rule = f"plain text is served on loopback addresses only, not on {settings.listen}"
            violations.append(Violation(field=loaded.name_of("insecure"), rule=rule))
    elif missing:
        rule = (
            "the API is served with TLS: give --tls-cert, --tls-key and --tls-ca "
            "(`federation certs --dir DIR` makes them for trying out), "
            "or --insecure for plain text on a loopback address"
        )
        violations.append(Violation(field=", ".join(missing), rule=rule))
    violations += _voucher_violations(loaded)
    if violations:
        raise InvalidRequest(violations, reason="BAD_SETTINGS")


def _voucher_violations(loaded: LoadedSettings) -> Iterator[Violation]:
    """Check that a voucher, its companions and rules come together: one alone lets nobody in."""
    settings = loaded.settings
    vouchers = {
        "oidc_issuer": ("oidc_audience", "oidc_jwks", "oidc_ca"),
        "token_review": ("token_review_audience",),
        "client_listen": ("client_ca",),
    }
    named = list[str]()
    for voucher, (beside, *companions) in vouchers.items():
        present = [name for name in (voucher, beside, *companions) if getattr(settings, name)]
        named += present
        needed = (voucher, beside, "role_rules") if present else ()
        for name in needed:
            if not getattr(settings, name):
                rule = f"is needed beside {loaded.name_of(present[0])}"
                yield Violation(field=loaded.options.options[name].flag, rule=rule)
    if settings.role_rules and not named:
        rule = f"is needed beside {loaded.name_of('role_rules')}"
        flags = (loaded.options.options[name].flag for name in vouchers)
        yield Violation(field=" or ".join(flags), rule=rule)
    for name in ("oidc_jwks" if settings.oidc_jwks else "oidc_issuer", "token_review"):
        url = getattr(settings, name)
        if url.startswith("http://") and not is_secure_url(url):
            yield Violation(field=loaded.name_of(name), rule="must be https, or on this machine")
    if settings.client_listen and settings.insecure:
        rule = "needs TLS: give --tls-cert, --tls-key and --tls-ca"
        yield Violation(field=loaded.name_of("client_listen"), rule=rule)
    elif settings.client_ca and settings.client_ca == settings.tls_ca:
        rule = "must be another one than --tls-ca, which vouches for servers"
        yield Violation(field=loaded.name_of("client_ca"), rule=rule)
