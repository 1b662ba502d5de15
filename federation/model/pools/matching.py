"""Whether the nodes of a pool suit a node claim: no, unknown, or yes.

Pure. Must not look at amounts, nor guess about labels that the pools do not carry.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from functools import lru_cache
from typing import Final

from federation.model.pools.values import NodePool
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, Word
from federation.model.selectors import matches_requirement
from federation.model.tolerations import Tolerations
from federation.model.workload import NodeClaim, NodeSelectorTerm, Operator, Requirement

# The one field node selector terms can name; nodes of a pool differ in it.
NAME_FIELD: Final = "metadata.name"


class Match(IntEnum):
    """The answer for a pool's nodes: AND is the smaller value, OR the greater."""

    NO = 0
    UNKNOWN = 1
    YES = 2


_NO_CLAIM: Final = NodeClaim()


def pool_match(pool: NodePool, label_keys: Collection[str], claim: NodeClaim | None) -> Match:
    """Return whether pods with this claim may run on the pool's nodes; None tolerates no taint."""
    claim = claim or _NO_CLAIM
    if pool.taints and Tolerations(claim.tolerations).first_untolerated(pool.taints) is not None:
        return Match.NO
    verdict = Match.YES
    for key, value in claim.node_selector.items():
        requirement = Requirement(key=key, operator=Operator.IN, values=(value,))
        verdict = min(verdict, _by_label(pool, label_keys, requirement))
    if claim.required_terms is not None:
        any_term = max(
            (_by_term(pool, label_keys, term) for term in claim.required_terms),
            default=Match.NO,
        )
        verdict = min(verdict, any_term)
    return verdict


def keys_not_carried(label_keys: Collection[str], claim: NodeClaim | None) -> list[str]:
    """Return the labels and fields of a claim that pools with these keys do not carry, in order."""
    if claim is None:
        return []
    terms = claim.required_terms or ()
    fields = {requirement.key for term in terms for requirement in term.match_fields} & {NAME_FIELD}
    return sorted((claim.label_keys - set(label_keys)) | fields)


# Clusters with the same labels get one value.
@lru_cache(maxsize=1024)
def untold_by_pools(keys: tuple[str, ...]) -> Reason:
    """Return why pools cannot answer for a claim on labels and fields that they do not carry."""
    return Reason.of(ReasonCode.POOLS_LACK_LABELS, tuple(map(Word, keys)))


def _by_term(pool: NodePool, label_keys: Collection[str], term: NodeSelectorTerm) -> Match:
    verdicts = [_by_label(pool, label_keys, requirement) for requirement in term.match_expressions]
    verdicts += [_by_field(requirement) for requirement in term.match_fields]
    # A term without expressions and fields matches nothing.
    return min(verdicts, default=Match.NO)


def _by_label(pool: NodePool, label_keys: Collection[str], requirement: Requirement) -> Match:
    if requirement.key not in label_keys:
        return Match.UNKNOWN
    return Match.YES if matches_requirement(requirement, pool.labels) else Match.NO


def _by_field(requirement: Requirement) -> Match:
    if requirement.key == NAME_FIELD:
        return Match.UNKNOWN
    return Match.YES if matches_requirement(requirement, {}) else Match.NO
