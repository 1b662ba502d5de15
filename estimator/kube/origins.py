"""Whom pods run for, found without reading any object but the pods themselves.

Pure. A Deployment's ReplicaSets are named after it and a hash that is also a label of the pods; a
CronJob's Jobs are named after it and a number. Any other owner of a pod's controller is not known:
pods of a custom resource that makes Deployments or Jobs, and pods without a controller, are found
by the binding's label alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from estimator.kube.objects import PodMetadata
from estimator.nodes import WorkloadRef
from federation.model import echoes
from federation.model.echoes import BINDING_LABEL, COMPONENT_LABEL, DECISION_LABEL, PodOrigin

# A cluster has about as many as it has ReplicaSets and Jobs.
REMEMBERED_ORIGINS: Final = 32_768

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
# The CronJob controller writes the scheduled time, in minutes, behind the name.
_CRON_JOBS_NAME: Final = re.compile(r"(.+)-[0-9]+", re.ASCII)


class Belonging(NamedTuple):
    """Whom a pod runs for; shared between pods that say the same.

    ``owner`` is a Deployment rather than its ReplicaSet, and ``revision`` which ReplicaSet that
    is. ``origin`` is what promises find the pod by.
    """

    owner: WorkloadRef | None
    revision: str
    origin: PodOrigin


def belonging_of(metadata: PodMetadata) -> Belonging:
    label = (metadata.labels or _NO_LABELS).get
    owner = None
    for reference in metadata.owner_references or ():
        if reference.controller:
            owner = reference.api_version, reference.kind, metadata.namespace or "", reference.name
            break
    return _belonging(
        owner,
        label(_TEMPLATE_HASH_LABEL, ""),
        label(BINDING_LABEL, ""),
        label(COMPONENT_LABEL),
        label(DECISION_LABEL),
    )


@lru_cache(maxsize=REMEMBERED_ORIGINS)
def _belonging(
    owner: tuple[str, str, str, str] | None,
    template_hash: str,
    binding_uid: str,
    component: str | None,
    decision: str | None,
) -> Belonging:
    if owner is None:
        return Belonging(None, "", PodOrigin(binding_uid, component, decision))
    _, kind, namespace, name = owner
    deployment = _deployment(kind, name, template_hash)
    if deployment:
        nearest = WorkloadRef(kind="Deployment", namespace=namespace, name=deployment)
    else:
        nearest = WorkloadRef(kind=kind, namespace=namespace, name=name)
    owners = tuple(_owners(echoes.Owner(*owner), template_hash))
    return Belonging(
        nearest,
        template_hash if deployment else "",
        PodOrigin(binding_uid, component, decision, owners),
    )


def _owners(owner: echoes.Owner, template_hash: str) -> Iterator[echoes.Owner]:
    deployment = _deployment(owner.kind, owner.name, template_hash)
    yield owner._replace(kind="Deployment", name=deployment) if deployment else owner
    cron_job = _CRON_JOBS_NAME.fullmatch(owner.name)
    if owner.kind == "Job" and cron_job is not None:
        yield owner._replace(kind="CronJob", name=cron_job[1])


def _deployment(kind: str, name: str, template_hash: str) -> str:
    """The name of the Deployment whose ReplicaSet this is; empty: it is none's."""
    ending = f"-{template_hash}"
    is_deployments = kind == "ReplicaSet" and template_hash and name.endswith(ending)
    return name.removesuffix(ending) if is_deployments else ""
