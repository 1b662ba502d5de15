"""Jobs that run in several clusters: their completions are divided once, and fixed from then on.

Pure. A member's API server refuses other completions, so that a new division would lose some.
"""

from __future__ import annotations

from collections.abc import Mapping

from federation.bridge.karmada import Document, KarmadaBinding
from federation.bridge.steps import HeldBinding


def is_running_job(binding: KarmadaBinding) -> bool:
    """Whether shares of a Job are in clusters already."""
    resource = binding.spec.get("resource") or {}
    is_job = resource.get("kind") == "Job" and str(resource.get("apiVersion")).startswith("batch/")
    return is_job and not binding.is_duplicated and any(binding.targets.values())


def with_fixed_shares(binding: KarmadaBinding, stored: HeldBinding | None) -> KarmadaBinding:
    """The binding as it is asked about: a running Job keeps all shares, and how many replicas.

    A share that has to leave its cluster goes to clusters that have none.
    """
    if not is_running_job(binding):
        return binding
    shares = {name: count for name, count in binding.targets.items() if count}
    limits: list[Document] = [
        {"targetCluster": {"clusterNames": [name]}, "min": count, "max": count}
        for name, count in shares.items()
    ]
    placement = binding.placement or {}
    strategy = {**placement.get("replicaScheduling", {}), "clusterLimits": limits}
    spec = {
        **binding.spec,
        "replicas": _replicas(binding, stored),
        "placement": {**placement, "replicaScheduling": strategy},
    }
    return binding.with_spec(spec)


def keeps_shares(binding: KarmadaBinding, targets: Mapping[str, int] | None) -> bool:
    """Whether no share of a running Job becomes another one; its clusters may be left."""
    if targets is None or not is_running_job(binding):
        return True
    return all(targets.get(name, count) == count for name, count in binding.targets.items())


def note_of(binding: KarmadaBinding, targets: Mapping[str, int]) -> str:
    """Why a running Job has other replicas than its spec asks for; "" where it has not."""
    placed = sum(targets.values())
    if not is_running_job(binding) or placed == binding.replicas:
        return ""
    return (
        f"spec.replicas is {binding.replicas} and {placed} stay: the completions of a Job are "
        "divided once, when it is placed"
    )


def _replicas(binding: KarmadaBinding, stored: HeldBinding | None) -> int:
    placed = sum(binding.targets.values())
    if stored is not None:
        return max(stored.replicas, placed)
    # What an eviction took has to run elsewhere.
    return max(binding.replicas, placed) if binding.spec.get("gracefulEvictionTasks") else placed
