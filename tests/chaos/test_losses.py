"""A short run of clusters that are lost, with a plan at its end, and the checkers themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.chaos.glances import MAY_STAY, Placed, Step, Watched, wrong_steps, wrongly_gone
from lab.chaos.havoc import Plan
from lab.chaos.losses import lose
from lab.chaos.preempting import Moved, too_fast

BEFORE = Placed(key="shop/web", decision="one", shares={"a": 2, "b": 2}, evicted={})
MOVED = replace(BEFORE, shares={"b": 4}, evicted={"a": 2})
GONE = replace(MOVED, evicted={})
SILENT = frozenset({"a"})
STARTED, REPLACED = {"a": 2, "b": 3}, {"a": 2, "b": 4}


def test_whoever_is_killed_no_share_of_a_lost_cluster_is_deleted_and_no_eviction_is_lost(
    tmp_path: Path,
) -> None:
    result = lose(tmp_path, Plan(seconds=0.0, planes=2, seed=3))
    assert result.violations == []
    # It would prove nothing if nothing had happened.
    for name in ("clusters lost", "evictions", "taken back", "holders killed", "promises checked"):
        assert result.counts[name] != 0
    # Also who carried a plan out: its steps went on, once each.
    assert result.counts["steps of a plan"] != 0
    assert result.counts["replicas preempted"] != 0
    assert result.counts["replayed equal"] != 0


def test_moves_within_a_minute_are_counted() -> None:
    moves = [Moved(float(second), f"shop/{second}", "a", 4) for second in range(120)]
    assert too_fast(moves, 48) == []
    assert too_fast([*moves, *(each._replace(key="shop/more") for each in moves[:9])], 48)


def test_a_step_that_is_not_done_or_done_twice_is_found() -> None:
    step = Step(number=1, key="shop/web", state="done", message="", decisions=1)
    assert wrong_steps([step], "a", {"shop/web"}, {"shop/web": GONE}) == []
    (found,) = wrong_steps([replace(step, decisions=2)], "a", {"shop/web"}, {"shop/web": GONE})
    assert "after 2 decisions" in found
    (found,) = wrong_steps([replace(step, state="skipped")], "a", {"shop/web"}, {})
    assert "is skipped" in found
    (found,) = wrong_steps([step], "a", {"shop/web"}, {"shop/web": BEFORE})
    assert found == "shop/web is still in a: nobody said why"
    placed = {"shop/web": BEFORE}
    stays = {"shop/web": f"{MAY_STAY}b, with fewer replicas"}
    assert wrong_steps([], "a", {"shop/web"}, placed, stays, ["shop/web"]) == []
    assert len(wrong_steps([], "a", {"shop/web"}, placed, stays, ["shop/other"])) == 2
    no_room = {"shop/web": "no room"}
    assert len(wrong_steps([], "a", {"shop/web"}, placed, no_room, ["shop/web"])) == 2
    (found,) = wrong_steps([], "a", {"shop/web"}, {})
    assert "moves [], not" in found


def test_a_share_that_is_evicted_and_replaced_is_no_violation() -> None:
    assert wrongly_gone(Watched(placed=BEFORE, silent=SILENT), MOVED, SILENT, STARTED) == []
    assert wrongly_gone(Watched(placed=MOVED, silent=SILENT), GONE, SILENT, REPLACED) == []
    back = Watched(placed=MOVED, silent=SILENT)
    assert wrongly_gone(back, BEFORE, frozenset(), STARTED) == []


def test_a_share_that_is_deleted_in_a_silent_cluster_is_found() -> None:
    for before, bound in ((MOVED, STARTED), (BEFORE, REPLACED)):
        watched = Watched(placed=before, silent=SILENT)
        (found,) = wrongly_gone(watched, GONE, SILENT, bound)
        assert found.startswith("shop/web lost 2 replicas in a")
    less = replace(BEFORE, shares={"a": 2, "b": 1})
    (found,) = wrongly_gone(Watched(placed=BEFORE, silent=SILENT), less, SILENT, REPLACED)
    assert found.startswith("shop/web had 4 replicas")
