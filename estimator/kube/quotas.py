"""Kubernetes' ResourceQuotas as what they leave.

Pure. Must not decide whom a quota counts: ``estimator.estimation.quota`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from estimator.estimation.quota import Quota
from estimator.kube.objects import Quantities, RawObject, RawStored
from estimator.kube.translate import Untranslatable
from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PODS,
    is_extended,
    nanos_per_base_unit,
)
from federation.model.workload import Operator, Requirement

_REQUESTS: Final = "requests."
# Other spellings of a pod slot.
_POD_COUNTS: Final = frozenset({PODS, "count/pods"})


class ScopeRequirement(RawObject, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(RawObject, frozen=True):
    match_expressions: list[ScopeRequirement] | None = None


class QuotaSpec(RawObject, frozen=True):
    hard: Quantities | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(RawObject, frozen=True):
    hard: Quantities | None = None
    used: Quantities | None = None


class RawQuota(RawStored, frozen=True):
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def quota_from_raw(raw: RawQuota) -> Quota:
    """A quota. Raises Untranslatable for what no API server stores."""
    name = f"{raw.metadata.namespace}/{raw.metadata.name}"
    selector = raw.spec.scope_selector or ScopeSelector()
    try:
        return Quota(
            namespace=raw.metadata.namespace or "",
            name=raw.metadata.name,
            # What the quota controller has not counted yet is not enforced either.
            left=_left(raw.status.hard or raw.spec.hard or {}, raw.status.used or {}),
            scopes=(
                *(
                    Requirement(key=scope, operator=Operator.EXISTS)
                    for scope in raw.spec.scopes or ()
                ),
                *(
                    Requirement(
                        key=expression.scope_name,
                        operator=Operator(expression.operator),
                        values=tuple(expression.values or ()),
                    )
                    for expression in selector.match_expressions or ()
                ),
            ),
        )
    except (QuantityError, ValueError) as error:
        raise Untranslatable(f"quota {name}: {error}") from error


def _left(hard: Mapping[str, str], used: Mapping[str, str]) -> dict[str, int]:
    """Hard minus used by the resource that is requested, the least where it is limited twice.

    Computed exactly and rounded down once. What limits anything but requests is left out.
    """
    amounts: dict[str, int] = {}
    for limited, text in hard.items():
        name = _requested_name(limited)
        if name is not None:
            nanos = parse_quantity(text).nanos - parse_quantity(used.get(limited, "0")).nanos
            amount = max(0, nanos) // nanos_per_base_unit(name)
            amounts[name] = min(amount, amounts.get(name, amount))
    return amounts


def _requested_name(limited: str) -> str | None:
    """The resource whose requests a quota's entry limits; None when it limits something else."""
    if limited in _POD_COUNTS:
        return PODS
    name = limited.removeprefix(_REQUESTS)
    if name in (CPU, MEMORY, EPHEMERAL_STORAGE) or name.startswith(HUGEPAGES_PREFIX):
        return name
    # Without the prefix, names with a slash count objects, storage classes, or nothing at all.
    return name if name != limited and is_extended(name) else None
