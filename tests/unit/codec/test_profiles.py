"""Scheduler profiles from configurations: what runs, with which weights and arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from federation.codec.profiles import profiles_from_document
from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profile, Profiles
from federation.scheduler.plugins.registry import IN_TREE, CycleState, ExtensionPoint, Plugin
from tests.unit.codec.documents import violations
from tests.unit.scheduler.states import state_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """One of each kind."""

    base_score: int = 1
    factor: float = 1.0
    inverted: bool = False
    label: str = ""
    zones: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.base_score > 50:
            raise InvalidRequest.of("baseScore", "must be at most 50")
        if self.factor < 0:
            raise ValueError("a factor below 0 turns the order around")


def echo(state: CycleState, args: Args) -> Any:
    return np.full(len(state.fleet), args.base_score)


class Catalog:
    """The scheduler's plugins, one of others, and one that cannot be loaded."""

    def names(self) -> Iterable[str]:
        return {*IN_TREE, "Echo", "Broken", "Sort", "Other"}

    def find(self, name: str) -> Plugin | None:
        if name == "Broken":
            raise InvalidRequest.of("", "Broken cannot be loaded: ImportError: no module")
        if name == "Echo":
            return Plugin(point=ExtensionPoint.SCORE, run=echo, args=Args)
        if name in ("Sort", "Other"):
            return Plugin(point=ExtensionPoint.QUEUE_SORT, run=str)
        return IN_TREE.get(name)


def read(*profiles: Any, **fields: Any) -> Profiles:
    document = {
        "apiVersion": "fedsched.io/v1",
        "kind": "FederationSchedulerConfiguration",
        "profiles": list(profiles),
        **fields,
    }
    return profiles_from_document(document, Catalog())


def profile(plugins: Any = None, config: Any = None) -> Profile:
    entry = {"schedulerName": "mine", "plugins": plugins, "pluginConfig": config}
    return read(entry).by_name["mine"]


def broken(*profiles: Any, **fields: Any) -> dict[str, str]:
    return violations(lambda: read(*profiles, **fields))


def of(plugins: Any, config: Any = None) -> dict[str, str]:
    found = broken({"schedulerName": "mine", "plugins": plugins, "pluginConfig": config})
    return {field.removeprefix("profiles[0]."): rule for field, rule in found.items()}


def filters(found: Profile) -> list[str]:
    return [each.name for each in found.filters]


def weights(found: Profile) -> dict[str, int]:
    return {each.name: each.weight for each in found.scores}


def test_a_profile_that_says_nothing_runs_what_the_default_does() -> None:
    found = profile()
    assert filters(found) == filters(DEFAULT_PROFILE)
    assert weights(found) == weights(DEFAULT_PROFILE)
    assert found.permits == ()


def test_enabled_comes_after_the_defaults_that_are_not_disabled() -> None:
    found = profile(
        {
            "filter": {
                "enabled": [{"name": "Capacity"}],
                "disabled": [{"name": "WorkloadAffinity"}, {"name": "WorkloadAntiAffinity"}],
            },
            "permit": {"enabled": [{"name": "Gang"}]},
        }
    )
    rest = [name for name in filters(DEFAULT_PROFILE) if not name.startswith("Workload")]
    assert filters(found) == [*rest, "Capacity"]
    assert [each.name for each in found.permits] == ["Gang"]


def test_weights_of_defaults_can_be_changed_where_they_are() -> None:
    found = profile(
        {"score": {"enabled": [{"name": "Echo"}, {"name": "AvailableReplicas", "weight": 3}]}}
    )
    expected = {"ClusterLocality": 1, "AvailableReplicas": 3, "Packing": 0, "Echo": 1}
    assert weights(found) == expected
    assert list(weights(found)) == list(expected)


def test_a_star_disables_every_default() -> None:
    found = profile(
        {
            "filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "ClusterAffinity"}]},
            "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "Packing", "weight": 0}]},
        }
    )
    assert (filters(found), weights(found)) == (["ClusterAffinity"], {"Packing": 0})


def test_arguments_are_typed_and_reach_the_plugin() -> None:
    args = {"baseScore": 7, "factor": 2, "inverted": True, "label": "x", "zones": ["a", "b"]}
    found = profile({"score": {"enabled": [{"name": "Echo"}]}}, [{"name": "Echo", "args": args}])
    (run,) = [each.run for each in found.scores if each.name == "Echo"]
    state = state_of([Cluster(name="a"), Cluster(name="b")], Binding(name="web"))
    assert run(state).tolist() == [7, 7]
    kept = run.keywords["args"]
    assert kept == Args(base_score=7, factor=2.0, inverted=True, label="x", zones=("a", "b"))


def test_every_broken_rule_is_told_with_its_path() -> None:
    found = broken(
        {"schedulerName": "a", "plugins": {"bind": {}, "score": {"enabled": {"name": "x"}}}},
        {"schedulerName": "a", "color": "blue"},
        {"plugins": {"filter": {"enabled": [{"name": "Packing"}, {"name": "Nope"}, {}]}}},
        "text",
        kind="KubeSchedulerConfiguration",
        extra=1,
    )
    assert found["kind"] == (
        "must be FederationSchedulerConfiguration, not 'KubeSchedulerConfiguration'"
    )
    assert found["extra"] == "there is no such field; fields are apiVersion, kind, profiles"
    assert found["profiles[0].plugins.bind"] == (
        "there is no such field; fields are filter, score, permit, reserve, postBind, queueSort"
    )
    assert found["profiles[0].plugins.score.enabled"] == "must be a list"
    assert found["profiles[1].schedulerName"] == "'a' is there already"
    assert found["profiles[1].color"].startswith("there is no such field")
    path = "profiles[2].plugins.filter.enabled"
    assert found[f"{path}[0].name"] == "Packing is a score plugin, not a filter plugin"
    assert found[f"{path}[1].name"].startswith("there is no plugin 'Nope'; plugins are APIEn")
    assert found[f"{path}[2].name"] == "is required, the name of a plugin"
    assert found["profiles[2].schedulerName"] == "is required, text"
    assert found["profiles[3]"] == "must be an object"


@pytest.mark.parametrize(
    ("plugins", "config", "field", "rule"),
    [
        (
            {"score": {"enabled": [{"name": "Packing", "weight": weight}]}},
            None,
            "plugins.score.enabled[0].weight",
            f"must be a whole number from 0 to 1000000, not {weight!r}",
        )
        for weight in (-1, 1_000_001, 1.5, True, "3", None)
    ]
    + [
        (
            {"filter": {"enabled": [{"name": "Capacity", "weight": 2}]}},
            None,
            "plugins.filter.enabled[0].weight",
            "there is no such field; fields are name",
        ),
        (
            {"permit": {"enabled": [{"name": "Gang"}, {"name": "Gang"}]}},
            None,
            "plugins.permit.enabled[1].name",
            "'Gang' is there already",
        ),
        (
            {"score": {"enabled": [{"name": "Broken"}]}},
            None,
            "plugins.score.enabled[0].name",
            "Broken cannot be loaded: ImportError: no module",
        ),
        (
            {"score": {"disabled": [{"name": "Nope"}]}},
            None,
            "plugins.score.disabled[0].name",
            "there is no plugin 'Nope'",
        ),
        (
            {"filter": {"disabled": [{"name": "*"}]}},
            None,
            "plugins.filter.disabled",
            "must leave ClusterAffinity on",
        ),
        (
            {},
            [{"name": "Gang", "args": {}}],
            "pluginConfig[0].name",
            "Gang is not enabled in this profile",
        ),
        (
            {},
            [{"name": "Packing"}, {"name": "Packing"}],
            "pluginConfig[1].name",
            "'Packing' is there already",
        ),
        (
            {},
            [{"name": "Packing", "args": {"a": 1}}],
            "pluginConfig[0].args",
            "must be empty: this plugin takes no arguments",
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_path(
    plugins: Any, config: Any, field: str, rule: str
) -> None:
    found = of(plugins, config)
    assert list(found) == [field]
    assert found[field].startswith(rule)


@pytest.mark.parametrize(
    ("args", "field", "rule"),
    [
        ({"baseScore": "7"}, ".baseScore", "must be a whole number, not '7'"),
        ({"baseScore": True}, ".baseScore", "must be a whole number, not True"),
        ({"factor": "x"}, ".factor", "must be a number, not 'x'"),
        ({"inverted": 1}, ".inverted", "must be true or false, not 1"),
        ({"label": 1}, ".label", "must be text, not 1"),
        ({"zones": "a"}, ".zones", "must be a list of texts, not 'a'"),
        ({"zones": [1]}, ".zones", "must be a list of texts, not [1]"),
        ({"colour": 1}, ".colour", "there is no such argument; arguments are baseScore, factor"),
        ({"base_score": 1}, ".base_score", "there is no such argument"),
        ({"baseScore": 51}, ".baseScore", "must be at most 50"),
        ({"factor": -1}, "", "a factor below 0 turns the order around"),
        ([1], "", "must be an object"),
    ],
)
def test_arguments_are_checked_by_type_and_by_the_plugin(args: Any, field: str, rule: str) -> None:
    found = of({"score": {"enabled": [{"name": "Echo"}]}}, [{"name": "Echo", "args": args}])
    assert list(found) == [f"pluginConfig[0].args{field}"]
    assert found[f"pluginConfig[0].args{field}"].startswith(rule)


@pytest.mark.parametrize("document", [None, {}, [], "text", {"profiles": []}])
def test_nothing_is_no_configuration(document: Any) -> None:
    with pytest.raises(InvalidRequest):
        profiles_from_document(document, Catalog())


def test_profiles_must_be_there() -> None:
    assert broken() == {"profiles": "is required: at least one profile"}


@pytest.mark.parametrize(
    ("fields", "strict", "seconds"),
    [
        ({}, False, 600.0),
        ({"queueing": "BestEffort", "starvationSeconds": 30}, False, 30.0),
        ({"queueing": "Strict", "starvationSeconds": 0.5}, True, 0.5),
    ],
)
def test_how_a_profile_queues(fields: dict[str, Any], *, strict: bool, seconds: float) -> None:
    profiles = read({"schedulerName": "mine", **fields})
    mine = profiles.by_name["mine"]
    assert (mine.strict, mine.starvation_seconds) == (strict, seconds)
    assert profiles.strict_names == ({"mine"} if strict else frozenset())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queueing", "strict"),
        ("queueing", []),
        ("starvationSeconds", 0),
        ("starvationSeconds", True),
        ("starvationSeconds", float("nan")),
        ("starvationSeconds", 10**400),
        ("starvationSeconds", "600"),
    ],
)
def test_queueing_that_makes_no_sense_is_refused(field: str, value: object) -> None:
    assert broken({"schedulerName": "mine", field: value}).keys() == {f"profiles[0].{field}"}


def test_a_profile_has_one_order_of_its_queue() -> None:
    def sorting(*names: str) -> dict[str, Any]:
        enabled = [{"name": name} for name in names]
        return {"schedulerName": "s", "plugins": {"queueSort": {"enabled": enabled}}}

    sort = read(sorting("Sort")).by_name["s"].queue_sort
    assert (sort is not None and sort.name, DEFAULT_PROFILE.queue_sort) == ("Sort", None)
    assert broken(sorting("Sort", "Other")) == {
        "profiles[0].plugins.queueSort.enabled": "must name one plugin: a queue has one order"
    }
