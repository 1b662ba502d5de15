"""Misspelt fields of Kubernetes' own workloads are refused, and no field that any version has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from federation.codec.kubernetes_fields import FIELDS, check_workload_fields
from federation.codec.violations import Violations
from federation.codec.workloads import bindings_from_documents
from tests.kubernetes_schemas import SCHEMAS
from tests.unit.codec.documents import violations

VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
# A container's own fields, for what may also run before or beside it.
GROUPS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicationController": "v1",
    "Pod": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}
POLICY = {
    "kind": "PropagationPolicy",
    "metadata": {"name": "p"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {},
    },
}


def referred(schema: Any) -> Iterator[str]:
    """The definition that a property is of, or the items of it."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for name, part in schema.items():
            if name != "additionalProperties":
                yield from referred(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from referred(part)


def whole(definitions: dict[str, Any], name: str) -> dict[str, Any]:
    """An object with every field that its schema has, and every field of those we look into."""
    type_name = name.rpartition(".")[2]
    value: dict[str, Any] = {}
    for field, schema in definitions[name]["properties"].items():
        inner = next(referred(schema), "")
        known = inner.rpartition(".")[2] in FIELDS and type_name in FIELDS
        value[field] = whole(definitions, inner) if known else None
        if known and "items" in schema:
            value[field] = [value[field]]
    return value


@pytest.mark.parametrize("version", VERSIONS)
def test_no_field_of_kubernetes_is_refused(version: str) -> None:
    text = (SCHEMAS / f"v{version}.0-local" / "_definitions.json").read_text(encoding="utf-8")
    definitions = json.loads(text)["$defs"]
    for kind, api_version in GROUPS.items():
        group = api_version.replace("/", ".") if "/" in api_version else f"core.{api_version}"
        (name,) = [each for each in definitions if each.endswith(f".api.{group}.{kind}")]
        document = whole(definitions, name) | {"apiVersion": api_version, "kind": kind}
        # The schema of every kind leads as deep as its pods' containers.
        assert '"limits"' in json.dumps(document)
        found = Violations()
        check_workload_fields(document, kind, found)
        found.check()


def test_the_table_has_no_field_that_no_version_has() -> None:
    known: dict[str, set[str]] = {}
    for version in VERSIONS:
        text = (SCHEMAS / f"v{version}.0-local" / "_definitions.json").read_text(encoding="utf-8")
        for name, schema in json.loads(text)["$defs"].items():
            if (
                ".api.core." in name
                or ".api.apps." in name
                or ".api.batch." in name
                or ".meta." in name
            ):
                known.setdefault(name.rpartition(".")[2], set()).update(
                    schema.get("properties", ())
                )
    for type_name, fields in FIELDS.items():
        assert set(fields) <= known[type_name]


def deployment(**changes: Any) -> dict[str, Any]:
    container = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": 1}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
        **changes,
    }


def broken(document: dict[str, Any]) -> dict[str, str]:
    return violations(bindings_from_documents, [document, POLICY])


def test_a_misspelt_number_of_replicas_is_refused() -> None:
    typo = deployment()
    typo["spec"]["replicsa"] = typo["spec"].pop("replicas")
    rule = "DeploymentSpec has no such field; did you mean replicas?"
    assert broken(typo) == {"Deployment/web.spec.replicsa": rule}


def test_every_level_that_is_read_is_checked() -> None:
    typo = deployment(specc={}, status={"whatever": 1})
    typo["metadata"]["lables"] = {}
    template = typo["spec"]["template"]
    template["metdata"] = {}
    template["spec"]["nodeSelecter"] = {}
    template["spec"]["affinity"] = {"nodeAfinity": {}}
    (container,) = template["spec"]["containers"]
    container["resorces"] = container.pop("resources")
    template["spec"]["initContainers"] = [{"name": "init", "resources": {"request": {}}}]
    pod = "Deployment/web.spec.template.spec"
    assert broken(typo).keys() == {
        "Deployment/web.specc",
        "Deployment/web.metadata.lables",
        "Deployment/web.spec.template.metdata",
        f"{pod}.nodeSelecter",
        f"{pod}.affinity.nodeAfinity",
        f"{pod}.containers[0].resorces",
        f"{pod}.initContainers[0].resources.request",
    }


def test_other_kinds_may_have_any_field() -> None:
    found = Violations()
    for document in (
        deployment(apiVersion="apps/v1beta1", extra=1),
        deployment(kind="Rollout", extra=1),
        {"kind": ["Deployment"], "extra": 1},
    ):
        check_workload_fields(document, "x", found)
    assert not len(found)
