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
    """The purpose of a token; ``federation.codec.rights`` has the methods that it may call."""

    VIEWER = "viewer"
    SCHEDULER = "scheduler"
    OPERATOR = "operator"
    BRIDGE = "bridge"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Names and patterns, in which ``*`` stands for any characters; without any, everything is
    visible.

    ``cluster_labels`` are labels that a cluster must have, in addition to a matching name.
    ``labels_of`` returns the labels of a cluster, None if there is no such cluster.
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
        """Return the limits on clusters as texts for people."""
        return (*self.clusters, *(f"{key}={value}" for key, value in self.cluster_labels))

    def sees_namespace(self, name: str) -> bool:
        return not self.namespaces or matches(self.namespaces, name)

    def sees_cluster(self, name: str) -> bool:
        if self.clusters and not matches(self.clusters, name):
            return False
        if not self.cluster_labels:
            return True
        # Labels are unknown: no cluster is visible.
        labels = self.labels_of(name) if self.labels_of is not None else None
        return labels is not None and all(
            labels.get(key) == value for key, value in self.cluster_labels
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """The limits of one caller at one control plane; 0: the default limits."""

    calls_per_second: int = 0
    calls_at_once: int = 0


EVERYTHING: Final = Scope()
NO_LIMITS: Final = CallerLimits()


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of the patterns matches the name."""
    return name in patterns or _expression(patterns).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _expression(patterns: Sequence[str]) -> re.Pattern[str]:
    # fnmatch makes atomic groups: matching does not backtrack, however many stars there are.
    return re.compile("|".join(map(fnmatch.translate, patterns)))
