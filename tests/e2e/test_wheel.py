"""The wheel, installed with some of its extras: each program runs, or says what it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from lab.servers import ROOT, environment
from tests.wheels import built_wheel, installed

EXTRAS = {"federation": "control-plane", "estimator": "estimator", "fedctl": "cli"}
# As the script that an installer makes for an entry point.
SCRIPT = """
import sys
from importlib.metadata import entry_points
sys.path.append(sys.argv.pop(1))
sys.argv[0] = sys.argv.pop(1)
(entry,) = entry_points(group="console_scripts", name=sys.argv[0])
sys.exit(entry.load()())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(ROOT, tmp_path_factory.mktemp("dist"))


def run(site: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without the packages of the tests, and elsewhere than where the sources are.
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", SCRIPT, str(site), program, *arguments],
        cwd=site,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
    )


# What another extra brings is all that its help needs.
ENOUGH_FOR_HELP = {("estimator", "control-plane"), ("estimator", "cli")}
NO_TRACE = "empty.trace"


@pytest.mark.parametrize("extras", [set(), *({extra} for extra in EXTRAS.values())], ids=" ".join)
def test_a_program_runs_or_says_which_extra_it_needs(
    wheel: Path, tmp_path: Path, extras: set[str]
) -> None:
    site = installed(wheel, extras, tmp_path)
    for program, extra in EXTRAS.items():
        if program == "fedctl":
            # Its help needs nothing.
            continue
        ran = run(site, program, "--help")
        if extra in extras or (program, *extras) in ENOUGH_FOR_HELP:
            assert (ran.returncode, ran.stderr) == (0, "")
            assert ran.stdout.startswith(f"Usage: {program} ")
        else:
            assert_names_extra(ran, program, extra)


@pytest.mark.parametrize("extras", [set(), *({extra} for extra in EXTRAS.values())], ids=" ".join)
def test_fedctl_helps_without_an_extra_and_says_which_one_a_verb_needs(
    wheel: Path, tmp_path: Path, extras: set[str]
) -> None:
    site = installed(wheel, extras, tmp_path)
    helped = run(site, "fedctl", "what-if", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith("Usage: fedctl what-if ")
    (site / NO_TRACE).touch()
    ran = run(site, "fedctl", "what-if", NO_TRACE)
    if extras & {"cli", "control-plane"}:
        assert ran.stderr == f"error: {NO_TRACE}: is not a trace of fedsched\n"
    else:
        assert_names_extra(ran, "fedctl", "cli")


def assert_names_extra(ran: subprocess.CompletedProcess[str], program: str, extra: str) -> None:
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"error: {program} needs the extra {extra} (")
    assert ran.stderr.endswith(f": pip install 'fedsched[{extra}]'\n")
    assert ran.stderr.count("\n") == 1


def test_its_types_are_there_for_others_and_the_page_s_files(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    page = Path("federation/web/ui")
    files = {
        str(each.relative_to(ROOT))
        for folder in ("templates", "static")
        for each in (ROOT / page / folder).iterdir()
    }
    assert len(files) > 10
    assert {"federation/py.typed", "estimator/py.typed", *files} <= set(names)
