"""docker-compose.yml: valid by Compose's schema, and every command in it one that we understand."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from estimator.__main__ import cli as estimator
from estimator.settings import OPTIONS as AGENT_OPTIONS
from estimator.settings import run_settings
from federation.__main__ import main as federation
from federation.cli.__main__ import fedctl
from federation.runtime.settings import OPTIONS, check_serving, load_settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
# With the default of every variable, as Compose puts it in.
COMPOSE: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", TEXT))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROGRAMS: dict[str, click.Group] = {
    "federation": federation,
    "estimator": estimator,
    "fedctl": fedctl,
}


def shell_commands(script: str) -> Iterator[list[str]]:
    """The commands of a line of shell, without what they redirect."""
    words: list[str] = []
    for word in shlex.shlex(script, posix=True, punctuation_chars=True):
        if set(word) <= set("&|;"):
            yield words
            words = []
        else:
            words.append(word)
    if ">" in words:
        del words[words.index(">") :]
    yield words


def commands_of(service: dict[str, Any]) -> Iterator[list[str]]:
    command = service.get("command", [])
    if command[:2] == ["sh", "-c"]:
        yield from shell_commands(command[2])
    else:
        yield command


OURS = [
    pytest.param(name, command, id=f"{name}: {' '.join(command[:2])}")
    for name, service in SERVICES.items()
    for command in commands_of(service)
    if command and command[0] in PROGRAMS
]


def parsed(command: Sequence[str]) -> click.Context:
    """The innermost command's context; raises click.UsageError for what is not understood."""
    program, *arguments = command
    context = PROGRAMS[program].make_context(program, list(arguments))
    while isinstance(group := context.command, click.Group):
        left = [*context._protected_args, *context.args]
        name, inner, rest = group.resolve_command(context, left)
        assert inner is not None
        context = inner.make_context(name, rest, parent=context)
    return context


def test_it_is_a_compose_file() -> None:
    checker = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    checked = subprocess.run(
        [*checker, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_every_program_of_ours_is_in_it() -> None:
    assert {each.values[1][0] for each in OURS} == set(PROGRAMS)


@pytest.mark.parametrize(("name", "command"), OURS)
def test_a_command_is_understood(name: str, command: list[str]) -> None:
    del name
    parsed(command)


def test_a_command_that_is_wrong_would_be_found() -> None:
    with pytest.raises(click.UsageError):
        parsed(["federation", "serve", "--nonsense"])
    with pytest.raises(click.UsageError):
        parsed(["fedctl", "join-token", "make"])


def test_the_control_planes_settings_go_together() -> None:
    service = SERVICES["control-plane"]
    values = parsed(service["command"]).params
    loaded = load_settings(
        flags={option.name: values[option.name] for option in OPTIONS},
        environment={name: str(value) for name, value in service["environment"].items()},
        document={},
        source="",
        data_dir=ROOT,
    )
    check_serving(loaded)
    assert loaded.settings.database_url


def test_the_agents_settings_go_together() -> None:
    flags = parsed(SERVICES["member1"]["command"]).params
    loaded = AGENT_OPTIONS.load(flags=flags, environment={}, document={}, source="")
    settings = run_settings(loaded, ROOT)
    assert settings.cluster == "member1"
    assert settings.join_token_file is not None


def test_every_variable_of_ours_means_something() -> None:
    known = {OPTIONS.variable(option) for option in OPTIONS} | {
        str(parameter.envvar) for parameter in fedctl.params if getattr(parameter, "envvar", None)
    }
    given = {
        variable for service in SERVICES.values() for variable in service.get("environment", {})
    }
    ours = {variable for variable in given if re.match("FEDERATION_|FEDCTL_|ESTIMATOR_", variable)}
    assert ours
    assert ours <= known


def test_mounted_folders_are_there_and_volumes_are_declared() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).is_dir()
            else:
                assert source in COMPOSE["volumes"]


def test_paths_in_commands_lie_in_mounted_folders() -> None:
    for name, service in SERVICES.items():
        mounts = volumes_at(service)
        for command in commands_of(service):
            for word in command:
                path = word.partition("=")[2] if word.startswith("--") else word
                if path.startswith("/"):
                    folder = next((each for each in mounts if path.startswith(each)), None)
                    assert folder is not None, f"{name}: {path}"
                    if mounts[folder].startswith("."):
                        assert (ROOT / mounts[folder] / Path(path).relative_to(folder)).exists()


def test_health_checks_in_python_are_python() -> None:
    for service in SERVICES.values():
        test = service.get("healthcheck", {}).get("test", [])
        if "-c" in test:
            ast.parse(test[test.index("-c") + 1])


def volumes_at(service: dict[str, Any]) -> dict[str, str]:
    """The volume that is mounted at each path."""
    return {mount.split(":")[1]: mount.split(":")[0] for mount in service.get("volumes", ())}


def holders(volume: str) -> set[str]:
    return {name for name, service in SERVICES.items() if volume in volumes_at(service).values()}


def test_private_keys_are_mounted_where_they_are_used_alone() -> None:
    authority = parsed(
        next(command for command in commands_of(SERVICES["certs"]) if command[0] == "federation")
    ).params["directory"]
    serving = parsed(SERVICES["control-plane"]["command"]).params["tls_key"]
    assert holders(volumes_at(SERVICES["certs"])[str(authority)]) == {"certs"}
    key_volume = volumes_at(SERVICES["control-plane"])[str(Path(serving).parent)]
    assert holders(key_volume) == {"certs", "control-plane"}
