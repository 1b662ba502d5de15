from __future__ import annotations

from federation.model.namespace_quotas import (
    REPLICAS,
    NamespaceQuota,
    beyond_quota,
    held_amounts,
)
from federation.model.reasons import NO_REASON
from federation.model.workload import ReplicaRequirements

QUOTA = NamespaceQuota(namespace="shop", limits={REPLICAS: 10, "cpu": 4000})
SMALL = ReplicaRequirements(request={"cpu": 500, "memory": 1 << 30})


def test_what_grows_beyond_a_limit_is_named() -> None:
    used = held_amounts([(6, SMALL)])
    assert used == {REPLICAS: 6, "cpu": 3000, "memory": 6 << 30}
    assert beyond_quota(QUOTA, used, {}, held_amounts([(2, SMALL)])) == NO_REASON
    said = beyond_quota(QUOTA, used, {}, held_amounts([(5, SMALL)]))
    assert str(said) == "short of quota of namespace shop: replicas 11 of 10, cpu 5.5 of 4"
    # Its own share counts once.
    assert beyond_quota(QUOTA, used, used, held_amounts([(8, SMALL)])) == NO_REASON


def test_what_shrinks_passes_however_much_is_held() -> None:
    before = held_amounts([(30, SMALL)])
    assert beyond_quota(QUOTA, before, before, held_amounts([(29, SMALL)])) == NO_REASON
    assert beyond_quota(QUOTA, before, before, before) == NO_REASON
    other = ReplicaRequirements(request={"cpu": 600})
    assert "cpu" in str(beyond_quota(QUOTA, before, before, held_amounts([(29, other)])))
    assert held_amounts([(0, SMALL), (-1, SMALL)]) == {}
