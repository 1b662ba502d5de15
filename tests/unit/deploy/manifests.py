"""The shipped Kubernetes manifests, read as they are.

Must not judge them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lab.manifests import SETTINGS

# Of Prometheus and Grafana, no objects of Kubernetes.
MONITORING = "monitoring"
# Of an operator that Kubernetes knows nothing of.
CLOUDNATIVE_PG = "cloudnative-pg"
DEPLOY = Path(__file__).parents[3] / "deploy"
AGENT_FOLDER = DEPLOY / "agent"
CONTROL_PLANE = DEPLOY / "control-plane"
BRIDGE = DEPLOY / "karmada-bridge"
# Templates, which are no YAML: another test renders them.
CHART = DEPLOY / "helm" / "fedsched"
# Read by kustomize, which is no API server.
KUSTOMIZATION = "kustomization.yaml"


def settings(within: Path) -> dict[str, str]:
    """Return the variables of a folder's settings.env."""
    lines = (within / SETTINGS).read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def files(within: Path = AGENT_FOLDER) -> list[Path]:
    return sorted(
        each
        for each in within.rglob("*.yaml")
        if each.name != KUSTOMIZATION
        and each.parent.name not in {MONITORING, CLOUDNATIVE_PG}
        and not each.is_relative_to(CHART)
    )


def documents(*names: str, within: Path = AGENT_FOLDER) -> Iterator[dict[str, Any]]:
    """Every object in these files, or in all."""
    for path in [within / name for name in names] or files(within):
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def one(kind: str, *names: str, within: Path = AGENT_FOLDER) -> dict[str, Any]:
    """The only object of this kind."""
    (found,) = (each for each in documents(*names, within=within) if each["kind"] == kind)
    return found
