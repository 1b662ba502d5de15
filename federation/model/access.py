"""Roles and scopes: what a caller may do, and which namespaces and clusters it may see.

Must not know how a caller proves who it is, nor what any method does.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

# The labels of a cluster by its name.
LabelsOf: TypeAlias = Callable[[str], Mapping[str, str] | None]


class Role(StrEnum):
    """What a token is for. ``federation.rpc.permissions`` says which methods each may call."""

    VIEWER = "viewer"
    SCHEDULER = "scheduler"
    OPERATOR = "operator"
    BRIDGE = "bridge"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Names and patterns in which ``*`` stands for any characters; none: all there are.

    ``cluster_labels`` are those that clusters have to have, beside their names. ``labels_of`` says
    which a cluster has now, None where there is no such cluster.
    """

    namespaces: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    cluster_labels: tuple[tuple[str, str], ...] = ()
    labels_of: LabelsOf | None = field(default=None, compare=False, repr=False)

    @property
    def sees_all_clusters(self) -> bool:
        return not (self.clusters or self.cluster_labels)

    @property
    def cluster_texts(self) -> tuple[str, ...]:
        """What clusters it is limited to, for people."""
        return (*self.clusters, *(f"{key}={value}" for key, value in self.cluster_labels))

    def sees_namespace(self, name: str) -> bool:
        return not self.namespaces or matches(self.namespaces, name)

    def sees_cluster(self, name: str) -> bool:
        if self.clusters and not matches(self.clusters, name):
            return False
        if not self.cluster_labels:
            return True
        # Nobody who can tell: nothing is seen.
        labels = self.labels_of(name) if self.labels_of is not None else None
        return labels is not None and all(
            labels.get(key) == value for key, value in self.cluster_labels
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """How much one caller may ask of one control plane; 0: as much as anybody."""

    calls_per_second: int = 0
    calls_at_once: int = 0


EVERYTHING: Final = Scope()
NO_LIMITS: Final = CallerLimits()


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the patterns stands for the name."""
    return name in patterns or _expression(patterns).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _expression(patterns: Sequence[str]) -> re.Pattern[str]:
    # The library's form never goes back over what a star has taken, however many stars there are.
    return re.compile("|".join(map(fnmatch.translate, patterns)))
