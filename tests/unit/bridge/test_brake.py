"""Many clusters that are lost at once are not left: that is rather one network, or Karmada."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from bridge.fleet import BridgedFleet, Changes
from bridge.karmada import KarmadaCluster, RawCluster, cluster_from_raw
from lab.karmadas import member

LOST = {"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}


def cluster(number: int, *taints: dict[str, str]) -> KarmadaCluster:
    document = member(f"m{number}", taints=list(taints))
    return cluster_from_raw(msgspec.convert(document, RawCluster))


@pytest.mark.parametrize(("lost", "is_braked"), [(4, False), (6, False), (7, True)], ids=str)
def test_the_brake_is_on_while_more_than_a_third_are_lost(
    lost: int, caplog: pytest.LogCaptureFixture, *, is_braked: bool
) -> None:
    line: Any = Mock()
    changes = Changes(
        changed=Mock(), moved=Mock(), spoken_for=Mock(), troubled=Mock(), unknown=Counter()
    )
    fleet = BridgedFleet(line, changes, failover=True)
    for number in range(20):
        fleet.put(cluster(number))
    for number in range(lost):
        fleet.put(cluster(number, LOST))
    assert ("nothing moves off them" in caplog.text) is is_braked
    for number in range(3):
        fleet.put(cluster(number))
    assert ("what runs there moves off them" in caplog.text) is is_braked
