"""The chapter about Karmada: a fake API server of it, and the bridge that decides its bindings.

Must not tell the bridge anything that Karmada does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from federation.client import BlockingClient, Client
from federation.demo.awaiting import AWAIT_SECONDS
from federation.demo.programs import DemoFailed, Programs
from federation.v1 import access_pb2

if TYPE_CHECKING:
    from federation.demo.stage import DemoStage

BINDING: Final = "store/web-deployment"
NEEDED: Final = ("karmada/karmada.py", "karmada/clusters.yaml", "karmada/binding.yaml")


def start_karmada(stage: DemoStage, programs: Programs) -> None:
    """Its API server, with the Clusters of the example."""
    config, folder = kubeconfig(stage), stage.examples / "karmada"
    programs.start(
        "karmada", str(folder / "karmada.py"), "serve", str(config), str(folder / "clusters.yaml")
    )
    deadline = monotonic() + AWAIT_SECONDS
    while not config.exists():
        programs.require_running()
        if monotonic() > deadline:
            raise DemoFailed(f"Karmada's API did not start within {AWAIT_SECONDS:g} s")
        sleep(0.05)


def start_bridge(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    """With a token that may do what a bridge does, and no more."""
    request = access_pb2.CreateTokenRequest(name="bridge", role=access_pb2.ROLE_BRIDGE)
    answer = client.call(partial(Client.create_token, request=request))
    token = stage.folder / "bridge.token"
    token.touch(mode=0o600)
    token.write_text(answer.secret, encoding="ascii")
    programs.start(
        "bridge",
        "-m",
        "federation",
        "bridge",
        f"--karmada-kubeconfig={kubeconfig(stage)}",
        f"--endpoint={stage.endpoint}",
        f"--token-file={token}",
        f"--ca={stage.certificates / 'ca.pem'}",
    )


def karmada_command(
    stage: DemoStage, verb: str, what: str, shown: Callable[[Path], str]
) -> tuple[str, list[str], tuple[str, ...]]:
    """What to show, and what to run."""
    script = stage.examples / "karmada" / "karmada.py"
    arguments = (verb, str(kubeconfig(stage)), what)
    return f"python {shown(script)}", [sys.executable, str(script)], arguments


def kubeconfig(stage: DemoStage) -> Path:
    return stage.folder / "karmada.config"
