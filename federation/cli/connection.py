"""Where the control plane is: the options every online verb shares, before and after its name.

Must not know any verb. The environment is read by click, from the variables declared here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from federation.cli.durations import DurationType
from federation.cli.folders import admin_token_file, contexts_file
from federation.cli.output import follow_clock
from federation.cli.refusals import explained
from federation.model.errors import (
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
    Violation,
)
from federation.runtime.terminal import say

if TYPE_CHECKING:
    from federation.client import Client, Target

T = TypeVar("T")
# Where nothing is said: a control plane on this machine, as it starts without any setting.
DEFAULTS: Final[Mapping[str, Any]] = {
    "endpoint": "127.0.0.1:7443",
    "token_file": admin_token_file(),
    "ca": None,
    "insecure": False,
}
# How long verbs wait for what takes a control plane long, and how often they say so.
PATIENT_SECONDS: Final = 600.0
TOLD_EVERY_SECONDS: Final = 5.0
SPOKEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
# The context that somebody has chosen, by the name of its parameter.
CHOSEN: Final = "chosen"
# The options that stand after the verb.
SAID: Final = "said"

# By parameter: what is said of it. Defaults are given before the verb; after it, it is said or not.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What was said about the control plane; nothing is opened before the first call."""

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
        import asyncio  # noqa: PLC0415 - see above

        from federation.client import BlockingClient  # noqa: PLC0415 - see above

        left = self.began + self.timeout_seconds - time.monotonic()

        async def bounded(client: Client) -> T:
            telling = asyncio.create_task(_keep_telling(doing)) if doing else None
            try:
                async with asyncio.timeout(max(left, 0)):
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
        """What a watch yields, on a connection of its own."""
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
                Violation(field=named.get(each.field, each.field), rule=each.rule)
                for each in error.violations
            ) from error


def connection() -> Connection:
    """The connection of the command that runs."""
    found = click.get_current_context().find_object(Connection)
    if found is None:
        raise FederationError("no connection was set up")
    return found


def patient_connection() -> Connection:
    """The same for what takes a control plane long; ``--timeout`` counts where it is said."""
    made, context = connection(), click.get_current_context()
    name = "timeout_seconds"
    source = context.find_root().get_parameter_source(name)
    if source is not ParameterSource.DEFAULT or name in context.meta.get(SAID, set()):
        return made
    return replace(made, timeout_seconds=PATIENT_SECONDS)


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


def accepting_options(command: click.Command) -> click.Command:
    """The same command, and all within it, with the program's options after its name too."""
    if isinstance(command, click.Group):
        for within in command.commands.values():
            accepting_options(within)
    taken = {parameter.name for parameter in command.params}
    hidden: dict[str, Any] = {"hidden": True, "expose_value": False}
    options = [
        click.Option([flag, name], **words, **hidden, callback=_said, is_eager=name == "endpoint")
        for name, (flag, words) in OPTIONS.items()
    ]
    chosen = click.Option(
        ["--context", CHOSEN],
        **hidden,
        callback=_moved,
        is_eager=True,
        shell_complete=context_names,
    )
    options.append(chosen)
    command.params += [option for option in options if option.name not in taken]
    return command


def context_names(_context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """For shells: those that are kept here, and nothing where the file is no good."""
    from federation.cli.contexts import read_contexts  # noqa: PLC0415 - yaml, see below

    try:
        kept = read_contexts(contexts_file()).options
    except FederationError:
        return []
    return sorted(name for name in kept if name.startswith(incomplete))


def defaults_of_context(context: click.Context, _: click.Parameter, name: str | None) -> None:
    """What a context says of the options that neither the command line nor variables do."""
    if not context.resilient_parsing:
        context.meta[CHOSEN] = name
        context.default_map = {**(context.default_map or {}), **_options_of(name)}


def made_connection(context: click.Context, options: Mapping[str, Any]) -> Connection:
    """What was said before the verb. The token and the CA of the context that counts are not for
    an endpoint that was named beside it.
    """
    made = Connection(**options)
    named = context.get_parameter_source("endpoint") in SPOKEN
    return _apart(context, made) if named else made


def _apart(root: click.Context, before: Connection) -> Connection:
    """Without what a context says that nobody has chosen."""
    if root.meta.get(CHOSEN):
        return before
    from_context = (
        option
        for option in DEFAULTS.keys() - {"endpoint"}
        if root.get_parameter_source(option) is ParameterSource.DEFAULT_MAP
    )
    return replace(before, **{option: DEFAULTS[option] for option in from_context})


def _moved(context: click.Context, _: click.Parameter, name: str | None) -> None:
    """The same, where the context is named after the verb."""
    before = context.find_object(Connection)
    if before is None or name is None:
        return
    root = context.find_root()
    root.meta[CHOSEN] = name
    options = {**DEFAULTS, **_options_of(name)}
    spoken = {option for option in OPTIONS if root.get_parameter_source(option) in SPOKEN}
    left = options.keys() - spoken - context.meta.get(SAID, set())
    context.obj = replace(before, **{option: options[option] for option in left})


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


def _said(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """What is said after the verb comes before what was said before it."""
    before, name = context.find_object(Connection), parameter.name or ""
    if before is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        context.meta.setdefault(SAID, set()).add(name)
        if name == "endpoint":
            before = _apart(context.find_root(), before)
        context.obj = replace(before, **{name: value})


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
