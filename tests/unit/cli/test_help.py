"""Every verb explains itself, with an example of how it is called."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.cli.connection import admin_token_file, contexts_file
from lab.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
START = """
import pwd, runpy, sys
pwd.getpwuid = {{}}.__getitem__
sys.argv[1:] = ["--help"]
runpy.run_module("{module}", run_name="__main__")
"""


def verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(verbs(fedctl)), ids=" ".join)
def test_every_help_has_an_example_of_that_verb(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(fedctl, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"fedctl {' '.join(path)}".rstrip() in result.stdout.partition("Example")[2]


def test_help_needs_no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user may have neither an entry in the user database nor a HOME."""

    def no_entry(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "FEDCTL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    with pytest.raises(RuntimeError):
        Path.home()
    assert admin_token_file() == Path("/var/lib/fedsched/admin.token")
    assert contexts_file() == Path("/var/lib/fedctl/config.yaml")
    assert CliRunner().invoke(fedctl, ["--help"]).exit_code == 0
    assert CliRunner().invoke(fedctl, ["config", "get-contexts"]).exit_code == 0
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert admin_token_file() == Path("/var/state/fedsched/admin.token")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/us")
    assert contexts_file() == Path("/etc/us/fedctl/config.yaml")


@pytest.mark.parametrize("module", ["federation.cli", "federation", "estimator"])
def test_every_program_has_help_for_a_user_without_an_entry(module: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", START.format(module=module)],
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={"PATH": os.environ["PATH"]},
        cwd=ROOT,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: ")
