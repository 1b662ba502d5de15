"""Whether callers were told the truth: their answers are compared with what is in the database.

Must not ask a control plane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lab.chaos.callers import Caller


def check_told(
    callers: Sequence[Caller],
    decisions: Mapping[str, tuple[str, Mapping[str, int]]],
    bindings: Mapping[str, tuple[Mapping[str, int], str]],
    decided: Mapping[str, Counter[str]],
) -> list[str]:
    """What is in the database and was told otherwise, or was told and is not there."""
    found = []
    for caller in callers:
        for told in caller.acknowledged:
            stored = decisions.get(told.decision)
            if stored != (told.binding, told.clusters):
                found.append(f"lost: {told}, stored is {stored}")
        for key, owned in caller.owned.items():
            clusters, decision = bindings.get(key, ({}, ""))
            if (clusters, decision) != (owned.clusters, owned.newest):
                expected = f"{owned.clusters} by {owned.newest}"
                found.append(f"{key} runs in {clusters} by {decision}, told was {expected}")
        found += [f"{key} was deleted and is there" for key in caller.deleted & bindings.keys()]
        found += [
            f"of an atomic batch only some were decided: {keys}"
            for keys in caller.together
            if len({bool(decided.get(key)) for key in keys}) > 1
        ]
        # Each request is refused or placed at most once, and refused before the queue places it.
        found += [
            f"{key}: {decided[key]} for {keys} requests"
            for key, keys in caller.keys.items()
            if key in decided and max(decided[key].values()) > keys
        ]
    return found
