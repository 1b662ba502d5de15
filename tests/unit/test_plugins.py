"""Plugins of installed packages, and the configuration files that name them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from federation.model.errors import InvalidRequest
from federation.plugins import read_profiles
from federation.runtime.bounded_calls import BoundedCalls
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Filter
from federation.scheduler.plugins.registry import IN_TREE
from lab.patience import PATIENCE_SECONDS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODULE = """
from dataclasses import dataclass

from federation.scheduler.plugins.registry import ExtensionPoint, Plugin


@dataclass(frozen=True)
class Args:
    weight: int = 1


@dataclass(frozen=True)
class Demanding:
    weight: int


@dataclass(frozen=True)
class Odd:
    weights: dict = None


def run(state, args=None):
    return ()


def wait(state):
    state.wait()
    return ()


def kept(state, replicas_c, args):
    return f"{state} {replicas_c} {args.weight}"


def undone(state, replicas_c, args):
    return args.weight


SLOW = Plugin(point=ExtensionPoint.FILTER, run=wait)
GOOD = Plugin(point=ExtensionPoint.FILTER, run=run, args=Args)
NO_UNDO = Plugin(point=ExtensionPoint.FILTER, run=run, undo=run)
KEEPS = Plugin(point=ExtensionPoint.RESERVE, run=kept, undo=undone, args=Args)
NO_POINT = Plugin(point="bind", run=run)
NO_FUNCTION = Plugin(point=ExtensionPoint.FILTER, run="run")
NO_DATACLASS = Plugin(point=ExtensionPoint.FILTER, run=run, args=int)
NO_DEFAULT = Plugin(point=ExtensionPoint.FILTER, run=run, args=Demanding)
NO_TYPE = Plugin(point=ExtensionPoint.FILTER, run=run, args=Odd)
"""


class Site:
    """A folder that packages are installed into."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "some_plugins.py").write_text(MODULE, encoding="utf-8")
        (folder / "some_exit.py").write_text("raise SystemExit(3)", encoding="utf-8")

    def install(self, package: str, **plugins: str) -> None:
        info = self._folder / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {package}\nVersion: 1\n", encoding="utf-8")
        lines = "\n".join(f"{name} = {value}" for name, value in plugins.items())
        (info / "entry_points.txt").write_text(f"[fedsched.plugins]\n{lines}\n", encoding="utf-8")

    def configured(self, points: str, more: str = "") -> Path:
        """A configuration of one profile, "mine"."""
        file = self._folder / "profiles.yaml"
        lines = (
            "apiVersion: fedsched.io/v1",
            "kind: FederationSchedulerConfiguration",
            "profiles:",
            "  - schedulerName: mine",
            f"    plugins: {{{points}}}",
            f"    {more}",
        )
        file.write_text("\n".join(lines), encoding="utf-8")
        return file


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "some_plugins", raising=False)
    return Site(tmp_path)


def filters(site: Site, *names: str) -> dict[str, Filter]:
    """Those of a profile that enables these beside the scheduler's own."""
    enabled = ", ".join(f"{{name: {name}}}" for name in names)
    profiles = read_profiles(site.configured(f"filter: {{enabled: [{enabled}]}}"))
    return {each.name: each for each in profiles.by_name["mine"].filters}


def why_not(site: Site, name: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        filters(site, name)
    return caught.value.message


def test_a_plugin_of_a_package_is_found_by_its_name(site: Site) -> None:
    site.install("some", Good="some_plugins:GOOD", Exit="some_exit")
    assert filters(site, "Good")["Good"].run(None, args=None) == ()
    assert "some_exit" not in sys.modules, "it was not asked for"
    assert "Nobody" in why_not(site, "Nobody")


def test_one_that_does_not_return_keeps_its_caller_for_a_while_and_then_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedCalls.__init__, "__defaults__", (0.01, PATIENCE_SECONDS))
    site.install("some", Slow="some_plugins:SLOW", Good="some_plugins:GOOD")
    found, stuck = filters(site, "Slow", "Good"), threading.Event()
    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
            found["Slow"].run(stuck)
        with pytest.raises(TimeoutError, match="not asked again for a while"):
            found["Slow"].run(stuck)
    finally:
        stuck.set()
    assert found["Good"].run(None) == ()


def test_a_profile_reads_what_a_plugin_keeps_and_undoes(site: Site) -> None:
    site.install("some", Keeps="some_plugins:KEEPS")
    more = "pluginConfig: [{name: Keeps, args: {weight: 7}}]"
    file = site.configured("reserve: {enabled: [{name: Keeps}]}", more)
    (keeps,) = read_profiles(file).by_name["mine"].reserves
    call: Any = keeps.run
    assert call("s", 3) == "s 3 7"
    undo: Any = keeps.undo
    assert undo("s", 3) == 7


def test_the_schedulers_own_names_cannot_be_taken_over(site: Site) -> None:
    site.install("some", ClusterReady="some_plugins:GOOD")
    assert filters(site, "ClusterReady")["ClusterReady"].run is IN_TREE["ClusterReady"].run


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("no_such_module:X", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("some_plugins:NOBODY", "AttributeError: "),
        ("some_exit:X", "SystemExit: 3"),
        ("some_plugins:run", "TypeError: it is a function, not a Plugin"),
        ("some_plugins:NO_POINT", "TypeError: it needs an extension point"),
        ("some_plugins:NO_UNDO", "TypeError: undo is a function, and of reserve plugins alone"),
        ("some_plugins:NO_FUNCTION", "TypeError: it needs an extension point"),
        ("some_plugins:NO_DATACLASS", "ValueError: args must be a dataclass"),
        ("some_plugins:NO_DEFAULT", "ValueError: argument weight needs a default"),
        ("some_plugins:NO_TYPE", "ValueError: argument weights must be bool, int, float, str or"),
    ],
)
def test_what_cannot_be_loaded_says_why(site: Site, value: str, what: str) -> None:
    site.install("some", Bad=value)
    assert f"Bad cannot be loaded: {what}" in why_not(site, "Bad")


def test_a_name_of_two_packages_is_nobodys(site: Site) -> None:
    site.install("one", Good="some_plugins:GOOD")
    site.install("other", Good="some_plugins:NO_POINT")
    assert "Good is provided by several packages: one, other" in why_not(site, "Good")


def test_without_a_file_there_is_the_default_profile() -> None:
    assert read_profiles(None) is DEFAULT_PROFILES


def test_the_example_configuration_is_read() -> None:
    profiles = read_profiles(EXAMPLES / "scheduler-config.yaml").by_name
    assert set(profiles) == {"default-scheduler", "batch"}
    assert [each.name for each in profiles["batch"].permits] == ["Gang"]
    assert [each.name for each in profiles["batch"].scores] == ["Packing"]
    weights = {each.name: each.weight for each in profiles["default-scheduler"].scores}
    assert weights == {"ClusterLocality": 10, "AvailableReplicas": 1, "Packing": 0}


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", ": kind"),
        (b"a: 1\n---\nb: 2\n", ""),
        (b"\xff", ""),
        (b"kind: [", ", line 2"),
        (b"kind: Deployment\n", ": kind"),
    ],
)
def test_a_wrong_file_is_told_by_its_name(tmp_path: Path, content: bytes, field: str) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        read_profiles(file)
    assert f"{file}{field}" in [each.field for each in caught.value.violations]


def test_a_missing_file_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.yaml: cannot be read"):
        read_profiles(tmp_path / "nowhere.yaml")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_profiles(tmp_path)
