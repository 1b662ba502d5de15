"""Whom pods run for, from what they say themselves."""

from __future__ import annotations

import pytest

from estimator.kube.objects import OwnerReference, PodMetadata
from estimator.kube.origins import belonging_of
from federation.model.echoes import Owner, PodOrigin

APPS, BATCH = "apps/v1", "batch/v1"
OWNERS = {
    "a deployment's": (
        (APPS, "ReplicaSet", "web-5d4f", "5d4f"),
        (Owner(APPS, "Deployment", "shop", "web"),),
    ),
    "a bare replica set's": (
        (APPS, "ReplicaSet", "web-5d4f", ""),
        (Owner(APPS, "ReplicaSet", "shop", "web-5d4f"),),
    ),
    "a replica set's that is not named after the hash": (
        (APPS, "ReplicaSet", "web", "5d4f"),
        (Owner(APPS, "ReplicaSet", "shop", "web"),),
    ),
    "a stateful set's": (
        (APPS, "StatefulSet", "db-1", "5d4f"),
        (Owner(APPS, "StatefulSet", "shop", "db-1"),),
    ),
    "a daemon set's": (
        (APPS, "DaemonSet", "log", ""),
        (Owner(APPS, "DaemonSet", "shop", "log"),),
    ),
    "a job's": ((BATCH, "Job", "train", ""), (Owner(BATCH, "Job", "shop", "train"),)),
    "a job's that may be a cron job's": (
        (BATCH, "Job", "backup-29391840", ""),
        (Owner(BATCH, "Job", "shop", "backup-29391840"), Owner(BATCH, "CronJob", "shop", "backup")),
    ),
    "a custom resource's": (
        ("kubeflow.org/v1", "PyTorchJob", "train-1", ""),
        (Owner("kubeflow.org/v1", "PyTorchJob", "shop", "train-1"),),
    ),
}


def metadata(owner: tuple[str, str, str, str] | None, **labels: str) -> PodMetadata:
    references = None
    if owner is not None:
        api_version, kind, name, template_hash = owner
        if template_hash:
            labels["pod-template-hash"] = template_hash
        references = [
            OwnerReference(api_version="v1", kind="Secret", name="not-its-controller"),
            OwnerReference(api_version=api_version, kind=kind, name=name, controller=True),
        ]
    return PodMetadata(name="p", namespace="shop", labels=labels, owner_references=references)


@pytest.mark.parametrize("whose", OWNERS)
def test_pods_are_found_by_their_top_level_owner(whose: str) -> None:
    reference, owners = OWNERS[whose]
    nearest, revision, origin = belonging_of(metadata(reference))
    assert origin == PodOrigin(owners=owners)
    assert nearest is not None
    assert (nearest.kind, nearest.namespace, nearest.name) == owners[0][1:]
    assert revision == (reference[3] if nearest.kind == "Deployment" else "")


def test_a_pod_without_a_controller_has_no_owner() -> None:
    assert belonging_of(metadata(None)) == (None, "", PodOrigin())


def test_labels_say_binding_component_and_decision() -> None:
    labels = {f"fedsched.io/{name}": f"the-{name}" for name in ("binding", "component", "decision")}
    for reference, owners in OWNERS.values():
        found = belonging_of(metadata(reference, **labels))
        assert found.origin == PodOrigin("the-binding", "the-component", "the-decision", owners)


def test_pods_that_say_the_same_share_it() -> None:
    one, other = (belonging_of(metadata((APPS, "DaemonSet", "log", ""))) for _ in range(2))
    assert one is other
