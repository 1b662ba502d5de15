"""A control plane with TLS and agents that replay recorded clusters, on a thread of this process.

Must not be what a page is about: pages that start a control plane start a real program.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from estimator.app import run as run_agent
from estimator.settings import OPTIONS, run_settings
from federation.certificates import make_certificates
from federation.client import BlockingClient, Client, Target
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.pages import ROOT
from lab.patience import PATIENCE_SECONDS, until

Answer = TypeVar("Answer")

MEMBERS: Final = ("member1", "member2", "member3")


class Fleet:
    """Certificates (``certs``) and the admin's token (``admin.token``) are in its folder."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._folder = folder
        self._database_url = database_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._kept = AsyncExitStack()
        self._agents: list[Future[None]] = []
        self._stopping = asyncio.Event()
        self.endpoint = ""
        self.web = ""

    def __enter__(self) -> Self:
        make_certificates(self._folder / "certs", ["127.0.0.1", "localhost"])
        self._thread.start()
        running = self._started(self._plane()).result(PATIENCE_SECONDS)
        self.endpoint, self.web = str(running.plane.endpoint), str(running.plane.web_endpoint)
        token = self._folder / "admin.token"
        token.touch(mode=0o600)
        token.write_bytes(running.plane.admin_token_file.read_bytes())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        for agent in self._agents:
            agent.result(PATIENCE_SECONDS)
        self._started(self._end()).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def join(self, members: Sequence[str]) -> None:
        """Each replays its recorded cluster; ends once all have reported."""
        wanted = set(members or MEMBERS)
        with BlockingClient(self._target()) as client:
            for member in sorted(wanted):
                answer = client.call(partial(Client.create_join_token, cluster=member))
                self._agents.append(self._started(self._agent(member, answer.token)))
            client.call(lambda api: until(partial(_reported, api), wanted.__eq__))

    def _started(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _end(self) -> None:
        await self._kept.aclose()
        # As asyncio.run does it.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _plane(self) -> RunningControlPlane:
        certificates = self._folder / "certs"
        return await self._kept.enter_async_context(
            running_control_plane(
                self._database_url,
                self._folder / "state",
                tls_cert=str(certificates / "server.pem"),
                tls_key=str(certificates / "server.key"),
                tls_ca=str(certificates / "ca.pem"),
            )
        )

    async def _agent(self, member: str, token: str) -> None:
        flags = {
            "cluster": member,
            "endpoint": self.endpoint,
            "ca_file": str(self._folder / "certs" / "ca.pem"),
            "credential_file": str(self._folder / f"{member}.credential.json"),
            "from": str(ROOT / "examples" / "clusters" / f"{member}.json"),
            "join_token": token,
        }
        loaded = OPTIONS.load(flags=flags, environment={}, document={}, source="")
        await run_agent(run_settings(loaded, self._folder), self._stopping)

    def _target(self) -> Target:
        return Target(
            endpoint=self.endpoint,
            token=(self._folder / "admin.token").read_text("ascii").strip(),
            ca_pem=(self._folder / "certs" / "ca.pem").read_bytes(),
        )


async def _reported(api: Client) -> set[str]:
    fleet = await api.list_clusters()
    return {each.metadata.name for each in fleet if each.status.agent.report_sequence > 0}
