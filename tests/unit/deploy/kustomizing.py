"""What kustomize makes of a kustomization and components, where there is no kustomize.

Must not guess: what it does not know ends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from lab.manifests import SETTINGS
from tests.unit.deploy.manifests import KUSTOMIZATION, documents, settings
from tests.unit.deploy.starting import by_name

Made = dict[tuple[str, str], Any]


def kustomized(base: Path, components: Sequence[Path] = ()) -> Made:
    """The resources of the base and of the components, patched in this order."""
    objects: Made = {}
    for directory in (base, *components):
        kustomization = yaml.safe_load((directory / KUSTOMIZATION).read_text(encoding="utf-8"))
        for name in kustomization.get("resources", ()):
            objects |= by_name(documents(name, within=directory))
        for generator in kustomization.get("configMapGenerator", ()):
            objects |= by_name([_config_map(directory, **generator)])
        for patch in kustomization.get("patches", ()):
            target = (patch["target"]["kind"], patch["target"]["name"])
            for operation in yaml.safe_load(patch["patch"]):
                _apply(objects[target], **operation)
    return objects


def without_sums(text: str) -> str:
    """Return what kustomize printed without the sums in names of ConfigMaps."""
    return re.sub(r"(-settings)-[a-z0-9]{10}\b", r"\1", text)


def _config_map(directory: Path, *, name: str, namespace: str, envs: Sequence[str]) -> Any:
    """Return it with its own name: the sum that kustomize adds is nobody's business here."""
    (file,) = envs
    if file != SETTINGS:
        raise ValueError(f"{file}: this reading of generators knows {SETTINGS} alone")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": settings(directory),
    }


def _apply(document: Any, *, op: str, path: str, value: Any) -> None:
    """One operation of a JSON patch."""
    *way, last = path.removeprefix("/").split("/")
    for step in way:
        document = document[int(step) if isinstance(document, list) else step]
    if (op, last) == ("add", "-"):
        document.append(deepcopy(value))
    elif op == "replace" and last in document:
        document[last] = value
    else:
        raise ValueError(f"{op} {path}: this reading of patches knows add to a list and replace")
