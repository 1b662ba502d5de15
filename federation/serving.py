"""A control plane with its database, from its start until it is to stop.

Must not read the environment, the command line or signals: ``__main__`` does.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from importlib.metadata import version
from typing import Any

from federation.app import ControlPlane
from federation.authenticators.configured import vouchers_of
from federation.database import Database, bring_up_to_date, opened_database
from federation.garbage import SpareLooks, sparing_the_fleet
from federation.parts import SystemClock
from federation.plugins import read_profiles
from federation.runtime import spans
from federation.runtime.interruptions import Interruptions
from federation.runtime.settings import LoadedSettings, UiAccess
from federation.runtime.terminal import say_lines
from federation.runtime.watched_files import FileWatch

# A limit of the system is raised to this, where it may be: for a connection of each agent.
MOST_FILES = 100_000

logger = logging.getLogger("federation")


def serve_until_stopped(
    loaded: LoadedSettings,
    search_path: str,
    interruptions: Interruptions,
    file_watch: FileWatch,
) -> None:
    """Blocks; ``search_path`` is looked through for PostgreSQL's programs. Raises FederationError,
    and KeyboardInterrupt when interrupted before it serves.
    """
    profiles = read_profiles(loaded.settings.scheduler_config)
    vouchers = vouchers_of(loaded.settings, SystemClock())
    raise_limit_of_files()
    with ExitStack() as stack:
        # An event loop must not be interrupted while it is made: it is told instead.
        with interruptions.allowed():
            database = stack.enter_context(opened_database(loaded.settings, search_path))
            for revision in bring_up_to_date(database, loaded):
                logger.info("migration run", extra={"fields": {"revision": revision}})
        settings = loaded.settings
        traces = spans.sent_to(
            settings.trace_endpoint, "federation", socket.gethostname(), ratio=settings.trace_ratio
        )
        stack.enter_context(traces)
        configured = functools.partial(
            ControlPlane, profiles=profiles, vouchers=vouchers, file_watch=file_watch
        )
        asyncio.run(_serve(loaded, database, configured, interruptions))


def raise_limit_of_files() -> None:
    """Many systems let a program have 1,024 open, and more if it asks."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    if files != resource.RLIM_INFINITY and files < raised:
        # A system may have a limit of its own that it does not tell.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, most))


async def _serve(
    loaded: LoadedSettings,
    database: Database,
    configured: Callable[..., ControlPlane],
    interruptions: Interruptions,
) -> None:
    stop = asyncio.Event()
    wake = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set)
    control_plane = configured(loaded.settings, database, host_name=socket.gethostname())
    with interruptions.told(wake):
        looking = asyncio.create_task(SpareLooks().keep_looking())
        try:
            with sparing_the_fleet():
                has_started = await unless_stopped(control_plane.start(), stop)
            if has_started:
                say_lines(_banner(loaded, database, control_plane), err=True)
                await stop.wait()
            logger.info("stopping")
        finally:
            looking.cancel()
            await control_plane.stop()


async def unless_stopped(start: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Whether the start came to its end: who is told to stop meanwhile need not wait for that."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        return False
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


def _banner(loaded: LoadedSettings, database: Database, control_plane: ControlPlane) -> str:
    settings = loaded.settings
    trust = "plain text" if settings.tls_ca is None else f"TLS, CA {settings.tls_ca}"
    token = control_plane.admin_token_file
    page = "readyz" if settings.ui is UiAccess.OFF else "ui/"
    lines = [
        f"fedsched {version('fedsched')} serves",
        f"  API       {control_plane.endpoint} ({trust})",
        f"  web       http://{control_plane.web_endpoint}/{page}",
        f"  database  {database.description}",
        f"  token     {token if token.exists() else 'where an earlier start wrote it'}",
    ]
    if control_plane.client_endpoint is not None:
        lines.insert(2, f"  clients   {control_plane.client_endpoint} (with certificates alone)")
    if control_plane.probe_endpoint is not None:
        lines.insert(3, f"  probes    http://{control_plane.probe_endpoint}/readyz")
    return "\n".join(lines)
