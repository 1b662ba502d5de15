"""Bridges as processes of their own, and a control plane.

Must not look into a process: what is known of it is what it writes, and its log.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.karmadas import Karmada
from lab.program_logs import checked_file
from lab.servers import ROOT, Server, environment, started

LOCAL = "127.0.0.1:0"


@contextmanager
def control_plane(
    folder: Path, *, listen: str = LOCAL, **variables: str
) -> Iterator[tuple[Server, str]]:
    """With its endpoint; its admin's token is in ``folder``."""
    flags = ("--insecure", "--web-listen", LOCAL)
    place = ("--data-dir", str(folder), "--listen", listen)
    with started(*flags, *place, **variables) as server:
        endpoint = server.await_line(r"API +(\S+)").group(1)
        server.await_line("token")
        yield server, endpoint


@contextmanager
def bridge_process(
    karmada: Karmada, folder: Path, endpoint: str, lease_name: str, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end; its log is in ``folder``. The lease of a killed one runs out slowly."""
    config = karmada.server.kubeconfig(folder / "karmada.config")
    arguments = [
        *("--karmada-kubeconfig", str(config), "--endpoint", endpoint, "--insecure"),
        *("--token-file", str(folder / "admin.token"), "--lease-name", lease_name, *options),
    ]
    with (
        checked_file("federation bridge", folder / "bridge.log") as path,
        path.open("a", encoding="utf-8") as log,
        subprocess.Popen(
            [sys.executable, "-m", "federation", "bridge", *arguments],
            cwd=ROOT,
            env=environment({}),
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()
