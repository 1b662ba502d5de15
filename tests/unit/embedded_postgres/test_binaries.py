from __future__ import annotations

from pathlib import Path

import pytest

from federation.embedded_postgres import binaries as postgres_binaries
from federation.embedded_postgres.binaries import BinariesNotFound, find_binaries


def programs(directory: Path, version: str = "17.2") -> Path:
    """Two stand-ins that only state a version, as the search asks nothing else of them."""
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return directory


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_binaries, "WHEEL_MODULE", "no_such_wheel")
    monkeypatch.setattr(postgres_binaries, "SYSTEM_PLACES", ())


def test_explicit_directory_wins(tmp_path: Path) -> None:
    explicit = programs(tmp_path / "bin", "16.9")
    found = find_binaries(explicit, "")
    assert (found.bin_directory, found.version, found.major_version) == (explicit, "16.9", 16)
    assert not found.movable


def test_explicit_directory_without_programs_is_an_error_and_not_a_hint(tmp_path: Path) -> None:
    with pytest.raises(BinariesNotFound, match=f"{tmp_path} has no postgres and initdb"):
        find_binaries(tmp_path, str(programs(tmp_path / "bin")))


def test_wheel_comes_before_path_and_its_newest_version_first(tmp_path: Path) -> None:
    found = find_binaries(None, str(programs(tmp_path / "bin")))
    assert found.movable
    assert found.major_version == max(
        find_binaries(directory, "").major_version
        for directory in postgres_binaries.wheel_directories()
    )


@pytest.mark.usefixtures("bare_machine")
def test_path_is_searched_in_its_order_past_what_does_not_run(tmp_path: Path) -> None:
    broken = programs(tmp_path / "broken")
    (broken / "postgres").write_text("not a program")
    half = tmp_path / "half"
    half.mkdir()
    wanted = programs(tmp_path / "wanted")
    later = programs(tmp_path / "later")
    assert find_binaries(None, f":{half}:{broken}:{wanted}:{later}").bin_directory == wanted


@pytest.mark.usefixtures("bare_machine")
def test_system_places_are_searched_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("9", "17", "15"):
        programs(tmp_path / version / "bin", version)
    monkeypatch.setattr(postgres_binaries, "SYSTEM_PLACES", ((tmp_path, "*/bin"),))
    assert find_binaries(None, "/nowhere").version == "17"


@pytest.mark.usefixtures("bare_machine")
def test_nothing_found_says_what_to_do() -> None:
    with pytest.raises(BinariesNotFound) as refused:
        find_binaries(None, "")
    for way_out in ("fedsched[embedded]", "FEDERATION_POSTGRES_BIN", "FEDERATION_DATABASE_URL"):
        assert way_out in refused.value.message
