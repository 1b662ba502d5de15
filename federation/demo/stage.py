"""Where everything of the demo is while it runs.

Must not start anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from federation.client import Target
from federation.demo import members as pods
from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.server import EmbeddedPostgres

BINARIES = "FEDERATION_POSTGRES_BIN"
MEMBERS = ("member1", "member2", "member3")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStage:
    """Where everything is while the demo runs."""

    folder: Path
    examples: Path
    endpoint: str
    web: str
    environment: Mapping[str, str]
    karmada: bool = False

    @property
    def certificates(self) -> Path:
        return self.folder / "certs"

    @property
    def token_file(self) -> Path:
        return self.folder / "state" / "admin.token"


def dump_of(stage: DemoStage, cluster: str) -> str:
    if cluster in MEMBERS:
        return f"--kubeconfig={pods.kubeconfig(stage, cluster)}"
    recorded = stage.examples / "clusters" / f"{cluster}.json"
    if recorded.exists():
        return f"--from={recorded}"
    return f"--report={stage.examples / 'reports' / f'{cluster}.json'}"


def target_of(stage: DemoStage) -> Target:
    return Target(
        endpoint=stage.endpoint,
        token=stage.token_file.read_text().strip(),
        ca_pem=(stage.certificates / "ca.pem").read_bytes(),
    )


def discard_database(stage: DemoStage) -> None:
    """What the control plane's PostgreSQL kept, also outside the demo's folder."""
    explicit = stage.environment.get(BINARIES)
    binaries = find_binaries(
        Path(explicit) if explicit else None, stage.environment.get("PATH", os.defpath)
    )
    EmbeddedPostgres(binaries, stage.folder / "state" / "postgres").discard()
