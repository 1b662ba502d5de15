"""Connections to control planes: the options of every online verb, and why one cannot be called.

Must not know any verb. Click reads the environment, from the variables declared in `OPTIONS`.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click
from click.core import ParameterSource

from federation.cli.arguments import DurationType
from federation.cli.output import follow_clock
from federation.cli.verbs import load_module
from federation.model.errors import (
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
    Violation,
)
from federation.runtime.state_home import home_directory, state_home
from federation.runtime.terminal import say

if TYPE_CHECKING:
    from federation.client import Client, Target


def contexts_file() -> Path:
    """``FEDCTL_CONFIG``, else where the XDG standard has it; without a home, where state is."""
    if named := os.environ.get("FEDCTL_CONFIG"):
        return Path(named)
    if folder := os.environ.get("XDG_CONFIG_HOME"):
        return Path(folder) / "fedctl" / "config.yaml"
    home = home_directory()
    return (state_home(os.environ) if home is None else home / ".config") / "fedctl" / "config.yaml"


def admin_token_file() -> Path:
    """The file in which a control plane of the same user keeps its admin's token."""
    return state_home(os.environ) / "fedsched" / "admin.token"


# Words of gRPC for a refused certificate, an answer without TLS, and a closed connection. Then for
# an HTTP server, a port without a listener, an unknown name, and a missing route.
UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
CLOSED: Final = ("Socket closed", "Connection reset", "recvmsg", "Stream removed", "GOAWAY")
NOT_OURS: Final = ("Received http2 header with status", "Trying to connect an http1.x server")
REFUSED: Final = "Connection refused"
UNKNOWN_NAME: Final = ("DNS resolution failed", "Domain name not found", "Name or service not")
UNREACHABLE: Final = ("Network is unreachable", "No route to host")
DATABASE: Final = "database"


class AskedServer(Protocol):
    """The options that say where the control plane is."""

    @property
    def endpoint(self) -> str: ...
    @property
    def ca(self) -> object | None: ...
    @property
    def insecure(self) -> bool: ...


def explained(error: FederationError, server: AskedServer) -> str | None:
    """Text that says what failed, why, and what to do; None where the error itself says so."""
    message, endpoint = error.message, " or ".join(server.endpoint.split(","))
    if any(words in message for words in NOT_OURS):
        return (
            f"what answers at {endpoint} is no control plane's API; check --endpoint: "
            "the API has a port of its own, 7443 unless told otherwise, beside the page's"
        )
    if not isinstance(error, Unavailable):
        return None
    if error.is_answer:
        return _answered(message, endpoint)
    _, untrusted, cause = message.partition(UNTRUSTED)
    if untrusted:
        cause = cause.removesuffix(": OK").lstrip(": ")
        remedy = "name its authority with --ca" if server.ca is None else f"--ca is {server.ca}"
        return f"the certificate of {endpoint} is not trusted ({cause}): {remedy}"
    if any(words in message for words in NO_TLS):
        return f"{endpoint} does not speak TLS: is it served with --insecure? Then say so here"
    if REFUSED in message:
        return (
            f"nothing listens at {endpoint} (connection refused): does it run there? "
            "`fedctl config get-contexts` shows what is kept, `fedctl doctor` what is wrong"
        )
    if any(words in message for words in UNKNOWN_NAME):
        return f"nobody knows the name in {endpoint}: check --endpoint, or this machine's DNS"
    if any(words in message for words in UNREACHABLE):
        return f"no network leads to {endpoint}: is a VPN or a route missing?"
    if any(words in message for words in CLOSED):
        return f"{endpoint} closed the connection ({message}); {_closed(server)}"
    return f"{endpoint} cannot be reached: {message}"


def _answered(message: str, endpoint: str) -> str | None:
    if DATABASE in message:
        return (
            f"{message} The control plane at {endpoint} runs, its database does not answer: "
            "`federation doctor` on its machine says more"
        )
    return None


def _closed(server: AskedServer) -> str:
    if server.insecure:
        return "it may speak TLS: leave --insecure out, and name its authority with --ca"
    return "it may not speak TLS, want a --client-cert, or have gone away: try again"


T = TypeVar("T")
# Where nothing is said: a control plane on this machine, as it starts without any setting.
DEFAULTS: Final[Mapping[str, Any]] = {
    "endpoint": "127.0.0.1:7443",
    "token_file": admin_token_file(),
    "ca": None,
    "client_cert": None,
    "client_key": None,
    "insecure": False,
}
# How long verbs wait for what takes a control plane long, and how often they say so.
PATIENT_SECONDS: Final = 600.0
TOLD_EVERY_SECONDS: Final = 5.0
SPOKEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
# The context that somebody has chosen, by the name of its parameter.
CHOSEN: Final = "chosen"

# Options of the program, by parameter: what is said of each.
OPTIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "endpoint": (
        "--endpoint",
        {
            "metavar": "HOST:PORT,...",
            "help": "The control plane, or several on one database: the first that can be "
            "reached. [env: FEDCTL_ENDPOINT]",
        },
    ),
    "token_file": (
        "--token-file",
        {
            "type": click.Path(path_type=Path),
            "help": "File with the token. [env: FEDCTL_TOKEN_FILE]",
        },
    ),
    "ca": (
        "--ca",
        {
            "type": click.Path(path_type=Path),
            "help": "Certificate authority to trust, PEM; else the system's. [env: FEDCTL_CA]",
        },
    ),
    "client_cert": (
        "--client-cert",
        {
            "type": click.Path(path_type=Path),
            "help": "Client certificate, PEM, in place of a token. [env: FEDCTL_CLIENT_CERT]",
        },
    ),
    "client_key": (
        "--client-key",
        {
            "type": click.Path(path_type=Path),
            "help": "Its private key, PEM. [env: FEDCTL_CLIENT_KEY]",
        },
    ),
    "insecure": (
        "--insecure",
        {
            "is_flag": True,
            "help": "Plain text, for a control plane on this machine.",
        },
    ),
    "timeout_seconds": (
        "--timeout",
        {
            "type": DurationType(is_open=True),
            "help": "How long the whole verb may wait for answers; a watch has no end.",
        },
    ),
}


INSECURE: Final = "--insecure"
FLAGS: Final = frozenset({"--context", *(flag for flag, _ in OPTIONS.values())})
# Options of verbs that are called as one of the program is.
OWN_FLAGS: Final = {"login": ("--token-file",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The options that say where the control plane is; the first call opens a channel."""

    endpoint: str
    token_file: Path
    ca: Path | None
    client_cert: Path | None
    client_key: Path | None
    insecure: bool
    timeout_seconds: float
    began: float = field(default_factory=time.monotonic)

    def call(self, method: Callable[[Client], Awaitable[T]], *, doing: str = "") -> T:
        """One call, on a connection of its own, within what is left of the time. Where what the
        control plane is ``doing`` is said, people are told of it now and then.
        """
        # Help, completion and what works on files do not wait for grpc.
        load_module("federation.client")
        import asyncio  # noqa: PLC0415 - see above

        from federation.client import BlockingClient  # noqa: PLC0415 - see above

        seconds_left = self.began + self.timeout_seconds - time.monotonic()

        async def bounded(client: Client) -> T:
            telling = asyncio.create_task(_keep_telling(doing)) if doing else None
            try:
                async with asyncio.timeout(max(seconds_left, 0)):
                    return await method(client)
            finally:
                if telling is not None:
                    telling.cancel()

        target = self._target()
        with self._explained(), BlockingClient(target) as client:
            answer = client.call(bounded)
            follow_clock(client.server_ahead_seconds)
            return answer

    def iterate(self, method: Callable[[Client], AsyncGenerator[T]]) -> Iterator[T]:
        """Yield the messages of a watch, on a connection of its own."""
        from federation.client import BlockingClient  # noqa: PLC0415 - see above

        target = self._target()
        with self._explained(), BlockingClient(target) as client:
            for news in client.iterate(method):
                follow_clock(client.server_ahead_seconds)
                yield news

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say which option is at fault where the library only says what failed."""
        try:
            yield
        except (TimeoutError, DeadlineMissed) as error:
            raise DeadlineMissed(self._too_late(error)) from error
        except Unauthenticated as error:
            text = (
                f"{error.message} The token is that of {self.token_file} (--token-file). "
                "`fedctl login` keeps another one; `federation admin-token`, where the control "
                "plane runs, makes a new one for its admin."
            )
            raise Unauthenticated(text, reason=error.reason) from error
        except FederationError as error:
            if (why := explained(error, self)) is None:
                raise
            raise Unavailable(why) from error

    def _too_late(self, error: Exception) -> str:
        text = f"no answer from {self.endpoint} within {self.timeout_seconds:g} s (--timeout)"
        said = error.message if isinstance(error, DeadlineMissed) else ""
        return text if said in ("", "Deadline Exceeded") else f"{text}: {said}"

    def _target(self) -> Target:
        from federation.client import Target  # noqa: PLC0415 - see above

        cert, key = self.client_cert, self.client_key
        token = b"" if cert else _read(self.token_file, "--token-file")
        named = {
            "token": f"--token-file {self.token_file}",
            "ca": f"--ca {self.ca}",
            "clientCert": "--client-cert",
        }
        try:
            return Target(
                endpoint=self.endpoint,
                token=token.decode("ascii", "replace").strip(),
                cert_pem=None if cert is None else _read(cert, "--client-cert"),
                key_pem=None if key is None else _read(key, "--client-key"),
                ca_pem=None if self.ca is None else _read(self.ca, "--ca"),
                plaintext=self.insecure,
                timeout_seconds=self.timeout_seconds,
            )
        except InvalidRequest as error:
            raise InvalidRequest(
                Violation(field=named.get(violation.field, violation.field), rule=violation.rule)
                for violation in error.violations
            ) from error


def connection() -> Connection:
    """The connection of the command that runs."""
    current = click.get_current_context().find_object(Connection)
    if current is None:
        raise FederationError("no connection was set up")
    return current


def is_stated(option: str) -> bool:
    """Whether the command line or a variable states an option, and no context alone."""
    return click.get_current_context().find_root().get_parameter_source(option) in SPOKEN


def patient_connection() -> Connection:
    """The same for what takes a control plane long; ``--timeout`` counts where it is said."""
    current, context = connection(), click.get_current_context()
    source = context.find_root().get_parameter_source("timeout_seconds")
    if source is not ParameterSource.DEFAULT:
        return current
    return replace(current, timeout_seconds=PATIENT_SECONDS)


async def _keep_telling(doing: str) -> None:
    """Until cancelled."""
    import asyncio  # noqa: PLC0415 - see above

    began = time.monotonic()
    while True:
        await asyncio.sleep(TOLD_EVERY_SECONDS)
        say(f"{doing}: {time.monotonic() - began:.0f} s so far", err=True)


def connection_options(**defaults: dict[str, Any]) -> Callable[[Any], Any]:
    """The options of the program, with what is said here of each: variables and defaults."""

    def decorated(command: Any) -> Any:
        for name, (flag, words) in reversed(OPTIONS.items()):
            command = click.option(flag, name, **words, **defaults.get(name, {}))(command)
        return command

    return decorated


def fronted(context: click.Context, arguments: Sequence[str]) -> list[str]:
    """The arguments, with the program's options first, which may also stand after the verb.

    A verb that has an option of the same name keeps it. Raises BadOptionUsage.
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif flag not in FLAGS or flag in OWN_FLAGS.get(next(iter(rest), ""), ()):
            rest.append(word)
        elif equals or flag == INSECURE:
            front.append(word)
        elif (value := next(words, None)) is not None:
            front += [word, value]
        elif context.resilient_parsing:
            rest.append(word)
        else:
            raise click.BadOptionUsage(flag, f"Option {flag!r} requires an argument.", context)
    return [*front, *rest]


def context_names(_context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """For shells: those that are kept here, and nothing where the file is no good."""
    from federation.cli.contexts import read_contexts  # noqa: PLC0415 - yaml, see below

    try:
        saved = read_contexts(contexts_file()).options
    except FederationError:
        return []
    return sorted(name for name in saved if name.startswith(incomplete))


def defaults_of_context(context: click.Context, _: click.Parameter, name: str | None) -> None:
    """Take from a context the options that neither the command line nor a variable states."""
    if not context.resilient_parsing:
        context.meta[CHOSEN] = name
        context.default_map = {**(context.default_map or {}), **_options_of(name)}


def made_connection(context: click.Context, options: Mapping[str, Any]) -> Connection:
    """The connection that the options state.

    The credential and the CA of the current context are not for an endpoint that an option names,
    and its certificate is not for a caller who names a token.
    """
    stated = Connection(**options)
    dropped: set[str] = set()
    if context.get_parameter_source("endpoint") in SPOKEN and not context.meta.get(CHOSEN):
        dropped |= DEFAULTS.keys() - {"endpoint"}
    if context.get_parameter_source("token_file") in SPOKEN:
        dropped |= {"client_cert", "client_key"}
    from_context = (
        option
        for option in dropped
        if context.get_parameter_source(option) is ParameterSource.DEFAULT_MAP
    )
    return replace(stated, **{option: DEFAULTS[option] for option in from_context})


def _options_of(name: str | None) -> Mapping[str, Any]:
    if not name and not contexts_file().exists():
        return {}
    # Who has no contexts does not wait for what reads them.
    from federation.cli.contexts import read_contexts  # noqa: PLC0415 - see above

    try:
        contexts = read_contexts(contexts_file())
        return contexts.of(name) if name else contexts.options.get(contexts.current, {})
    except FederationError as error:
        broken = error.violations if isinstance(error, InvalidRequest) else (error,)
        raise click.UsageError("\n".join(map(str, broken))) from error


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        rule = f"cannot read {path}: there is no such file"
        if option == "--token-file":
            rule += "; name one that holds a token, or keep one with `fedctl login`"
        raise InvalidRequest.of(option, rule) from error
    except OSError as error:
        raise InvalidRequest.of(option, f"cannot read {path}: {error.strerror}") from error
