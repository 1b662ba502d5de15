"""The shipped Kubernetes manifests, read as they are.

Must not judge them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parents[3] / "deploy" / "kubernetes"
# Read by kustomize, which is no API server.
KUSTOMIZATION = "kustomization.yaml"


def files() -> list[Path]:
    return sorted(each for each in KUBERNETES.rglob("*.yaml") if each.name != KUSTOMIZATION)


def documents(*names: str) -> Iterator[dict[str, Any]]:
    """Every object in these files, or in all."""
    for path in [KUBERNETES / name for name in names] or files():
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def one(kind: str, *names: str) -> dict[str, Any]:
    """The only object of this kind."""
    (found,) = (each for each in documents(*names) if each["kind"] == kind)
    return found
