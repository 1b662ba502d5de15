"""Scopes and limits of callers: what a role may be limited to.

Must not know where the limits are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from federation.codec.ranges import distinct, whole
from federation.codec.violations import Violations, joined
from federation.model.access import CallerLimits, Role, Scope

MOST_NAMED: Final = 100
# A prefix, a slash and a name.
MOST_LABEL_CHARACTERS: Final = 317
MOST_CALLS: Final = 1_000_000
# Names of namespaces and clusters, with any characters where there is a star.
_PATTERN: Final = re.compile(r"[-a-z0-9*]{1,63}", re.ASCII)


def scope_of(
    role: Role | None,
    namespaces: Sequence[str],
    clusters: Sequence[str],
    found: Violations,
    path: str = "",
) -> Scope:
    """What a caller of a role may see; ``role`` is None where it is not known."""
    _patterns(namespaces, joined(path, "namespaces"), found)
    _patterns(clusters, joined(path, "clusters"), found)
    if role is Role.ADMIN and namespaces:
        rule = "must be empty: the role admin is for everything"
        found.add(joined(path, "namespaces"), rule)
    if role in {Role.ADMIN, Role.BRIDGE, Role.SCHEDULER} and clusters:
        rule = f"must be empty: what the role {role} schedules may get any cluster"
        found.add(joined(path, "clusters"), rule)
    return Scope(namespaces=tuple(namespaces), clusters=tuple(clusters))


def labelled(
    scope: Scope, role: Role | None, labels: Mapping[str, str], found: Violations
) -> Scope:
    """The same, for clusters with these labels alone."""
    path = "clusterLabels"
    if role in {Role.ADMIN, Role.BRIDGE, Role.SCHEDULER} and labels:
        found.add(path, f"must be empty: what the role {role} schedules may get any cluster")
    if len(labels) > MOST_NAMED:
        found.add(path, f"are more than {MOST_NAMED}")
        return scope
    for key, value in sorted(labels.items()):
        if not key:
            found.add(path, "must not have an empty key")
        for written in (key, value):
            if len(written) > MOST_LABEL_CHARACTERS:
                rule = f"must not have more than {MOST_LABEL_CHARACTERS} characters"
                found.add(f"{path}[{key[:64]}]", rule)
    return replace(scope, cluster_labels=tuple(sorted(labels.items())))


def limits_of(
    calls_per_second: int, calls_at_once: int, found: Violations, path: str = ""
) -> CallerLimits:
    """How much a caller may ask; 0: as much as anybody."""
    for name, number in (("callsPerSecond", calls_per_second), ("callsAtOnce", calls_at_once)):
        whole(number, joined(path, name), found, least=0, most=MOST_CALLS)
    return CallerLimits(calls_per_second=calls_per_second, calls_at_once=calls_at_once)


def _patterns(patterns: Sequence[str], path: str, found: Violations) -> None:
    for position, pattern in enumerate(patterns):
        if position == MOST_NAMED:
            found.add(path, f"are more than {MOST_NAMED}")
            return
        if not _PATTERN.fullmatch(pattern):
            rule = "must be 1 to 63 lower-case letters, digits, '-', and '*' for any characters"
            found.add(f"{path}[{position}]", f"{rule}, not {pattern[:64]!r}")
    distinct(patterns, path, found)
