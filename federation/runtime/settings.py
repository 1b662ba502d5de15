"""Settings of the control plane, each with where it came from: flags, environment, file, default.

Must not read the process environment, the command line or files: all three are passed in.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from federation.model.errors import InvalidRequest, Violation
from federation.runtime.database_url import masked_url, parse_database_url
from federation.runtime.variables import unknown_variables

ENVIRONMENT_PREFIX = "FEDERATION_"
CONFIG_VARIABLE = "FEDERATION_CONFIG"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens or is reached: host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface, and so names no place that others can dial."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, parsed. ``OPTIONS`` says what each is for. Empty and None: not set."""

    listen: Address
    web_listen: Address
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
    scheduler_config: Path | None
    allow_unproven: bool
    keep_decisions_days: int
    simulation_workers: int
    simulation_seconds: float
    simulation_steps: int
    simulation_memory_mebibytes: int
    log_format: LogFormat
    log_level: LogLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one setting is read: its name in the file, the text of its default, and its parser.

    The flag is ``--name-with-dashes``, the variable ``FEDERATION_NAME``. What is ``secret`` is
    not repeated in errors.
    """

    name: str
    parse: Callable[[str], Any]
    default: str
    help: str
    switch: bool = False
    secret: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value came from: the layer, and how the setting is called there."""

    layer: str
    name: str

    def __str__(self) -> str:
        return f"{self.layer} {self.name}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings and, by setting name, where each came from."""

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: Sequence[str] = ()

    def name_of(self, setting: str) -> str:
        """The setting as its author wrote it, the flag where nobody did: for error messages."""
        return self.origins[setting].name or _option(setting).flag

    def shown(self) -> list[dict[str, str]]:
        """Rows of name, value and origin, secrets masked."""
        return [
            {
                "name": option.name,
                "value": _shown(getattr(self.settings, option.name)),
                "origin": str(self.origins[option.name]),
            }
            for option in OPTIONS
        ]


def parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address is written in brackets, as [::1]:7443")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must be HOST:PORT")
    return Address(host=host, port=int(port))


def parse_switch(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text.lower() == "true"


def parse_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise ValueError("must be http://HOST:PORT/PATH or https://HOST:PORT/PATH")
    return text


def seconds_between(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"must be a number of seconds from {least:g} to {most:g}")
        return value

    return parse


def number_between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else -1
        if not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return parse


def one_of(choices: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(text: str) -> StrEnum:
        try:
            return choices(text)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(choices)}") from None

    return parse


OPTIONS: Sequence[Option] = (
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
        help="HOST:PORT of plain HTTP: /ca.pem, /healthz, /readyz.",
    ),
    Option(
        name="probe_listen",
        parse=parse_address,
        default="",
        help="HOST:PORT of /healthz and /readyz alone, for those who watch over this process.",
    ),
    Option(
        name="advertise_endpoint",
        parse=parse_address,
        default="",
        help="HOST:PORT that agents dial, when it is not the one listened on.",
    ),
    Option(
        name="advertise_ca_url",
        parse=parse_url,
        default="",
        help="Where agents fetch the CA certificate, when it is not /ca.pem of the web address.",
    ),
    Option(
        name="peer_endpoint",
        parse=parse_address,
        default="",
        help="HOST:PORT at which other control planes reach this one alone; else as agents do.",
    ),
    Option(
        name="peer_name",
        parse=str,
        default="",
        help="The name in the other control planes' certificates, when it is not their host.",
    ),
    Option(
        name="data_dir",
        parse=Path,
        default="",
        help="Directory of the admin token and of the embedded database.",
    ),
    Option(
        name="database_url",
        parse=parse_database_url,
        default="",
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
        default="",
        help="Directory with the postgres and initdb programs for the embedded PostgreSQL.",
    ),
    Option(name="tls_cert", parse=Path, default="", help="Server certificate, PEM."),
    Option(name="tls_key", parse=Path, default="", help="Private key of the certificate, PEM."),
    Option(name="tls_ca", parse=Path, default="", help="CA that agents and clients trust, PEM."),
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
        name="scheduler_config",
        parse=Path,
        default="",
        help="YAML file of scheduler profiles; without one there is default-scheduler alone.",
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
    Option(name="log_format", parse=one_of(LogFormat), default="text", help="text or json."),
    Option(
        name="log_level",
        parse=one_of(LogLevel),
        default="info",
        help="debug, info, warning or error.",
    ),
)


def load_settings(
    *,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    document: Mapping[str, object],
    source: str,
    data_dir: Path,
) -> LoadedSettings:
    """Flags before environment before file before defaults.

    ``document`` is the content of the file named ``source``; ``data_dir`` the default of that
    setting. Raises InvalidRequest with everything that is wrong, each under the name it was
    written as. Other variables of our prefix are warned about.
    """
    names = [option.name for option in OPTIONS]
    violations = [
        Violation(field=f"{source}: {key}", rule=f"is no setting; settings are {', '.join(names)}")
        for key in document
        if key not in names
    ]
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for option in OPTIONS:
        try:
            text, origin = _written(option, flags, environment, document, source)
            values[option.name] = _parsed(option, text, origin)
            origins[option.name] = origin
        except InvalidRequest as error:
            violations += error.violations
    if violations:
        raise InvalidRequest(violations, reason="BAD_SETTINGS")
    values["data_dir"] = values["data_dir"] or data_dir
    known = [CONFIG_VARIABLE, *(option.variable for option in OPTIONS)]
    return LoadedSettings(
        settings=Settings(**values),
        origins=origins,
        warnings=unknown_variables(environment, ENVIRONMENT_PREFIX, known),
    )


def check_serving(loaded: LoadedSettings) -> None:
    """The rules between settings that hold for a server. Raises InvalidRequest with all broken."""
    settings = loaded.settings
    tls = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    missing = [_option(name).flag for name, path in tls.items() if path is None]
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
    if violations:
        raise InvalidRequest(violations, reason="BAD_SETTINGS")


def _option(name: str) -> Option:
    return next(option for option in OPTIONS if option.name == name)


def _written(
    option: Option,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    document: Mapping[str, object],
    source: str,
) -> tuple[str, Origin]:
    flag = flags.get(option.name)
    if flag is not None:
        return flag, Origin(layer="flag", name=option.flag)
    if environment.get(option.variable):
        return environment[option.variable], Origin(layer="environment", name=option.variable)
    if document.get(option.name) is not None:
        origin = Origin(layer="file", name=f"{source}: {option.name}")
        value = document[option.name]
        if not isinstance(value, str | int | float):
            raise InvalidRequest.of(origin.name, "must be one value")
        return str(value), origin
    return option.default, Origin(layer="default", name="")


def _parsed(option: Option, text: str, origin: Origin) -> Any:
    if not text:
        return "" if option.parse in {str, parse_database_url, parse_url} else None
    try:
        return option.parse(text)
    except ValueError as error:
        # An address may hold a password, also where somebody put it under another name.
        written = "" if "://" in text or option.secret else f"; it is {text!r}"
        raise InvalidRequest.of(origin.name, f"{error}{written}") from error


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and "://" in value:
        return masked_url(value)
    return "" if value is None else str(value)
