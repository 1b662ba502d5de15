"""Karmada's binding as the control plane is asked to decide it.

Pure. Must not know whether it is decided already.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from federation.bridge.karmada import APPLIED_PLACEMENT, Document, KarmadaBinding
from federation.bridge.known_fields import known
from federation.bridge.triggers import applied_placement, is_placement_new
from federation.codec.bindings import BINDING_API_VERSION
from federation.codec.strict import message_from_document
from federation.model.placement import OnClusterLoss
from federation.v1 import resource_pb2

NO_EXECUTE: Final = "NoExecute"
NO_SCHEDULE: Final = "NoSchedule"
KARMADA_TIES: Final = "karmada"

# On the control plane's copy of a binding: which of Karmada's schedulers it is bridged as.
KARMADA_SCHEDULER: Final = "fedsched.io/karmada-scheduler"
# And which of its generations was asked for: what is stored of that is the answer to it.
KARMADA_GENERATION: Final = "fedsched.io/karmada-generation"
# Who is suspended is not asked for; a scheduler's name would be a profile of the control plane's.
_LEFT_OUT: Final = ("suspension", "schedulerName")


def request_of(
    binding: KarmadaBinding,
    *,
    scheduler: str,
    as_karmada: bool,
    unknown: Counter[str],
    failover: bool = False,
) -> resource_pb2.ResourceBinding:
    """The binding with where it runs now. ``as_karmada`` breaks ties in Karmada's order.

    A silent cluster keeps what it has, as the bridge may be away: Karmada says what is lost. With
    ``failover`` evicting taints evict here, else that is Karmada's own. Raises InvalidRequest.
    """
    spec = {key: each for key, each in binding.spec.items() if key not in _LEFT_OUT}
    placement = binding.placement
    if placement is not None:
        spec["placement"] = _placement(placement, as_karmada=as_karmada, failover=failover)
    spec["clusters"] = [
        {"name": name, "replicas": replicas} for name, replicas in binding.targets.items()
    ]
    document: Document = {
        "apiVersion": BINDING_API_VERSION,
        "kind": binding.kind,
        "metadata": {
            "namespace": binding.namespace,
            "name": binding.name,
            "uid": binding.uid,
            "labels": _groups(binding),
            "annotations": {
                KARMADA_SCHEDULER: scheduler,
                KARMADA_GENERATION: str(binding.generation),
            },
        },
        "spec": known(spec, resource_pb2.ResourceBindingSpec.DESCRIPTOR, "spec", unknown),
    }
    if placement is not None and is_placement_new(binding):
        applied = _placement(applied_placement(binding), as_karmada=as_karmada, failover=failover)
        document["metadata"]["annotations"][APPLIED_PLACEMENT] = json.dumps(
            known(applied, resource_pb2.Placement.DESCRIPTOR, "spec.placement", unknown)
        )
    status = {}
    if binding.last_scheduled_time:
        status["lastScheduledTime"] = binding.last_scheduled_time
    if binding.observing_affinity:
        status["schedulerObservingAffinityName"] = binding.observing_affinity
    if status:
        document["status"] = status
    message = message_from_document(document, resource_pb2.ResourceBinding)
    message.spec.on_cluster_loss = OnClusterLoss.WAIT.value
    return message


def asked_generation(message: resource_pb2.ResourceBinding) -> int:
    """Which of Karmada's generations the control plane's copy was asked with; -1: none.

    People may write annotations, too.
    """
    text = message.metadata.annotations.get(KARMADA_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() else -1


def without_eviction(taint: Document) -> Document:
    """The taint as it keeps replicas away: moving those that are there is Karmada's own."""
    return {**taint, "effect": NO_SCHEDULE} if taint.get("effect") == NO_EXECUTE else taint


def _placement(placement: Document, *, as_karmada: bool, failover: bool) -> Document:
    written = dict(placement)
    tolerations: list[Any] = list(written.get("clusterTolerations") or ())
    if tolerations and not failover:
        # Evicting taints are told as taints that keep away: who tolerates one tolerates the other.
        written["clusterTolerations"] = tolerations + [
            {
                **{key: each[key] for key in each if key != "tolerationSeconds"},
                "effect": NO_SCHEDULE,
            }
            for each in tolerations
            if isinstance(each, dict) and each.get("effect") == NO_EXECUTE
        ]
    if as_karmada:
        written["tieBreak"] = KARMADA_TIES
    return written


def _groups(binding: KarmadaBinding) -> dict[str, str]:
    """The labels that the control plane groups workloads by: Karmada has read them already."""
    affinity = (binding.placement or {}).get("workloadAffinity") or {}
    groups = binding.spec.get("workloadAffinityGroups") or {}
    labels = {}
    for term, group in (("affinity", "affinityGroup"), ("antiAffinity", "antiAffinityGroup")):
        key = (affinity.get(term) or {}).get("groupByLabelKey")
        if key and groups.get(group):
            labels[key] = groups[group]
    return labels
