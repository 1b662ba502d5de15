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
from federation.model.cluster import Cluster

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


def after(breaker: Breaker, seen: Silences, **options: object) -> Breaker:
    heard = [name for name in NAMES if name not in seen.silent]
    arguments = {"heard": heard, "lost": (), "limits": LIMITS, **options}
    return judged(breaker, seen, ORIGINS, **arguments)


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
    def places(*names: str, **options: object) -> object:
        arguments = {"lost": (), "limits": LIMITS, **options}
        silent = suspected(Breaker(), silences(*names), ORIGINS, **arguments)
        return {str(place.place): (len(place.fell), len(place.clusters)) for place in silent}

    assert after(Breaker(), silences(*NAMES[:6])).freeze is None
    assert places(*NAMES[:6]) == {"region south": (6, 8)}
    assert places(*NAMES[1:10:2], NAMES[2]) == {
        "control plane a": (5, 10),
        "region south": (5, 8),
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


BY_PLACE = LIMITS._replace(by_place=True)


def frozen_places(breaker: Breaker) -> list[str]:
    return [str(place.place) for place in breaker.places if place.freeze.by == BREAKER]


def test_where_that_is_asked_for_a_place_freezes_and_thaws_by_itself() -> None:
    frozen = after(Breaker(), silences(*NAMES[:6]), limits=BY_PLACE)
    assert frozen.freeze is None
    assert frozen_places(frozen) == ["region south"]
    (place,) = frozen.places
    assert place.freeze.reason == (
        "6 of 8 clusters of region south fell silent within a minute: c00, c01, c02, c03, c04, c05."
    )
    assert frozen.holds(Cluster(name="c07", region="south"))
    assert not frozen.holds(Cluster(name="c08", region="north"))
    # Of eight two are a quarter, and one is less than half of the limit.
    assert after(frozen, silences(*NAMES[:2]), limits=BY_PLACE) == frozen
    assert after(frozen, silences(NAMES[0]), limits=BY_PLACE) == Breaker()
    # After a start nobody is silent yet, and nobody was heard either.
    assert after(frozen, silences(), limits=BY_PLACE, heard=()) == frozen
    # What others freeze for all does not keep a place from thawing; and it may be switched off.
    stopped = frozen.frozen("admin", NOW, "network change")
    assert after(stopped, silences(), limits=BY_PLACE).places == ()
    assert after(frozen, silences(*NAMES[:6])) == Breaker()


def test_what_one_control_plane_heard_is_a_place_whoever_hears_it_next() -> None:
    # Of both regions, and of each as many as are no region's fault.
    silent = [NAMES[1], NAMES[3], NAMES[9], NAMES[11], NAMES[13]]
    frozen = after(Breaker(), silences(*silent), limits=BY_PLACE)
    assert frozen_places(frozen) == ["control plane a"]
    assert frozen.holds(Cluster(name=NAMES[5]))
    assert not frozen.holds(Cluster(name=NAMES[4]))
    dialled = {name: origin._replace(control_plane="b") for name, origin in ORIGINS.items()}
    heard = [name for name in NAMES if name not in silent]
    seen = silences(*silent)
    arguments = {"heard": heard, "lost": (), "limits": BY_PLACE}
    assert judged(frozen, seen, dialled, **arguments) == frozen
    assert judged(frozen, silences(), dialled, **{**arguments, "heard": NAMES}) == Breaker()


def test_a_place_that_people_resume_does_not_freeze_again_for_the_same_silence() -> None:
    seen = silences(*NAMES[:6])
    frozen = after(Breaker(), seen, limits=BY_PLACE)
    resumed = frozen.resumed_in(frozen.places[0].place, NAMES[:6])
    assert after(resumed, seen, limits=BY_PLACE) == resumed
    assert not resumed.places
    # Of the fleet as a whole, too, they do not count any more.
    assert after(resumed, silences(*NAMES[:7]), limits=BY_PLACE).freeze is None


def test_more_than_a_place_freezes_all() -> None:
    frozen = after(Breaker(), silences(*NAMES[:7]), limits=BY_PLACE)
    assert reason(frozen)
    assert frozen.places == ()
