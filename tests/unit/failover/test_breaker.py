"""When many clusters fall silent at once: what is frozen, who is named, and when it is over."""

from __future__ import annotations

from federation.failover.breaker import (
    BREAKER,
    Breaker,
    BreakerLimits,
    ClusterOrigin,
    Freeze,
    judged,
    suspected,
)
from federation.failover.silence import Silence, Silences

NAMES = [f"c{number:02}" for number in range(20)]
ORIGINS = {
    name: ClusterOrigin(
        region="south" if place < 8 else "north",
        provider="cloud",
        control_plane="a" if place % 2 else "b",
    )
    for place, name in enumerate(NAMES)
}
LIMITS = BreakerLimits(clusters=5, percent=30)
NOW = 1000.0


def silences(*names: str, stale_at: float = NOW - 10) -> Silences:
    silent = {name: Silence(stale_at - 30, stale_at) for name in names}
    return Silences(looked_at=NOW, listening_since=0.0, silent=silent)


def after(breaker: Breaker, seen: Silences, **given: object) -> Breaker:
    heard = [name for name in NAMES if name not in seen.silent]
    return judged(breaker, seen, ORIGINS, **{"heard": heard, "lost": (), "limits": LIMITS, **given})


def reason(breaker: Breaker) -> str:
    assert breaker.freeze is not None
    assert breaker.freeze.by == BREAKER
    assert breaker.freeze.since == NOW
    return breaker.freeze.reason


def test_more_than_the_percentage_and_enough_of_them_freeze_it() -> None:
    assert after(Breaker(), silences(*NAMES[:6])) == Breaker()
    assert after(Breaker(), silences(*NAMES[:7])).freeze is not None
    few = BreakerLimits(clusters=8, percent=30)
    assert after(Breaker(), silences(*NAMES[:7]), limits=few) == Breaker()


def test_who_fell_silent_one_after_the_other_does_not_freeze_it() -> None:
    slowly = {name: Silence(NOW - 30 * place, NOW - 30 * place) for place, name in enumerate(NAMES)}
    seen = Silences(looked_at=NOW, listening_since=0.0, silent=slowly)
    assert after(Breaker(), seen) == Breaker()


def test_it_says_who_is_silent_and_what_they_share() -> None:
    text = reason(after(Breaker(), silences(*NAMES[:8])))
    assert text == (
        "8 of 20 clusters fell silent within a minute: c00, c01, c02, c03, c04, c05, c06, c07. "
        "In common: region south, which has 8 of its 8 clusters silent."
    )
    text = reason(after(Breaker(), silences(*NAMES[1::2])))
    assert "through control plane a, which has 10 of its 10 clusters silent" in text
    text = reason(after(Breaker(), silences(*NAMES)))
    assert text.endswith("They have nothing in common.")
    text = reason(after(Breaker(), silences(*NAMES), database_back_at=NOW - 5))
    assert text.endswith("In common: the database could not be read until then.")


def test_what_was_lost_before_or_accepted_does_not_fall_silent_again() -> None:
    seen = silences(*NAMES[:12])
    assert after(Breaker(), seen, lost=NAMES[:6]) == Breaker()
    accepted = Breaker().resumed(NAMES[:6])
    assert after(accepted, seen) == accepted
    # Once they are heard they may.
    heard = after(accepted, silences())
    assert heard == Breaker()
    assert after(heard, seen).freeze is not None


def test_many_of_one_place_are_told_of_though_the_fleet_as_a_whole_speaks() -> None:
    def places(*names: str, **given: object) -> object:
        found = {"lost": (), "limits": LIMITS, **given}
        return suspected(Breaker(), silences(*names), ORIGINS, **found)

    assert after(Breaker(), silences(*NAMES[:6])).freeze is None
    assert places(*NAMES[:6]) == {"region south": "6 of 8 clusters"}
    assert places(*NAMES[1:10:2], NAMES[2]) == {
        "control plane a": "5 of 10 clusters",
        "region south": "5 of 8 clusters",
    }
    assert places(*NAMES[:4]) == {}
    assert places(*NAMES[:6], lost=NAMES[:2]) == {}
    # All are of one provider: that says nothing.
    assert places(*NAMES[8:12]) == {}


def test_it_thaws_by_itself_when_few_are_silent_and_those_were_heard() -> None:
    frozen = after(Breaker(), silences(*NAMES[:8]))
    assert after(frozen, silences(*NAMES[:3])) == frozen
    assert after(frozen, silences(*NAMES[:2])).freeze is None
    # After a start nobody is silent yet, and nobody was heard either.
    assert after(frozen, silences(), heard=()) == frozen


def test_what_people_froze_stays_frozen_until_they_resume_it() -> None:
    frozen = Breaker().frozen("admin", NOW - 50, "network change")
    assert after(frozen, silences()) == frozen
    assert after(frozen, silences(*NAMES)) == frozen
    assert frozen.freeze == Freeze(by="admin", since=NOW - 50, reason="network change")
    assert frozen.resumed(["c00"]) == Breaker(accepted=frozenset({"c00"}))
