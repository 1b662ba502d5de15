"""Writes the plain manifests of deploy/ from the Helm chart, so that both say the same.

Must not know what the objects mean: it renders, leaves out labels of Helm, and divides by kind.

    .venv/bin/python -m lab.manifests
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lab.charts import rendered_texts

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm" / "fedsched"
NAMESPACE = "fedsched"
HEADER = "# Written by `make manifests` from the chart in deploy/helm.\n"
# Of a configMapGenerator, by which other settings bring other pods.
SETTINGS = "settings.env"
# Where an object goes by its kind.
FILES = {
    "ServiceAccount": "serviceaccount.yaml",
    "Service": "service.yaml",
    "Deployment": "deployment.yaml",
    "PodDisruptionBudget": "poddisruptionbudget.yaml",
    "NetworkPolicy": "networkpolicy.yaml",
    "Secret": "secret.yaml",
    "ClusterRole": "rbac.yaml",
    "ClusterRoleBinding": "rbac.yaml",
    "Role": "rbac.yaml",
    "RoleBinding": "rbac.yaml",
}
# What Helm alone writes or runs.
LABEL_OF_HELM = re.compile(
    r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE
)
SUM_OF_SETTINGS = re.compile(
    r"^ *annotations:\n(?: *#.*\n)* *fedsched\.io/settings: .*\n", re.MULTILINE
)
KIND = re.compile(r"^kind: (\w+)$", re.MULTILINE)
EMPTY_LINES = re.compile(r"^ *\n", re.MULTILINE)
# An agent as `fedctl join-token create` describes it.
JOINING = {
    "enabled": True,
    "cluster": "member1",
    "endpoint": "control-plane.example:7443",
    "caUrl": "http://control-plane.example:7080/ca.pem",
    "caSha256": "0" * 64,
}
NO_CONTROL_PLANE: Mapping[str, Any] = {"controlPlane": {"enabled": False}}


class Part(NamedTuple):
    """The values of a folder, and which templates of the chart it has."""

    values: Mapping[str, Any]
    templates: frozenset[str]


PARTS = {
    "control-plane": Part(
        # A hook is Helm's: here each pod migrates before it serves.
        {"controlPlane": {"migration": {"hook": False}}},
        frozenset({"control-plane.yaml", "control-plane-networkpolicy.yaml"}),
    ),
    "agent": Part(
        {**NO_CONTROL_PLANE, "agent": JOINING},
        frozenset({"agent.yaml", "agent-networkpolicy.yaml"}),
    ),
    "agent/binder": Part(
        {**NO_CONTROL_PLANE, "agent": {**JOINING, "binder": True}},
        frozenset({"agent-binder.yaml"}),
    ),
    "karmada-bridge": Part(
        {**NO_CONTROL_PLANE, "bridge": {"enabled": True}},
        frozenset({"bridge.yaml", "bridge-networkpolicy.yaml"}),
    ),
}


def written() -> dict[Path, str]:
    """Return the text of each file that the chart decides, by its path."""
    return {
        DEPLOY / folder / name: ("" if name == SETTINGS else HEADER) + "---\n".join(documents)
        for folder, part in PARTS.items()
        for name, documents in documents_by_file(part).items()
    }


def documents_by_file(part: Part) -> Mapping[str, list[str]]:
    texts = rendered_texts(CHART, part.values, namespace=NAMESPACE)
    documents: defaultdict[str, list[str]] = defaultdict(list)
    for template in sorted(part.templates):
        for text in re.split(r"^---\n", texts[template], flags=re.MULTILINE):
            plain = EMPTY_LINES.sub("", SUM_OF_SETTINGS.sub("", LABEL_OF_HELM.sub("", text)))
            kind = KIND.search(plain)
            if kind and kind[1] == "ConfigMap":
                documents[SETTINGS].append(environment_file(plain))
            elif kind:
                documents[FILES[kind[1]]].append(plain.rstrip("\n") + "\n")
    return documents


def environment_file(config_map: str) -> str:
    """Return the data of a ConfigMap as lines NAME=VALUE, with the comments between them."""
    lines = config_map.partition("\ndata:\n")[2].splitlines()
    plain = (re.sub(r"^(\w+): \"?(.*?)\"?$", r"\1=\2", line.strip()) for line in lines)
    return "\n".join(plain) + "\n"


def main() -> None:
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
        print(f"fedsched: wrote {path.relative_to(DEPLOY.parent)}")


if __name__ == "__main__":
    main()
