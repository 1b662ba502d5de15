"""Names of earlier releases, which still work and which no help shows."""

from __future__ import annotations

import click
import pytest

from federation.cli.__main__ import fedctl

# By the path of a command: an old option, and the one that takes its place.
OPTIONS = {
    "estimate": {"--from": "--from-file", "--selector": "--node-selector"},
    "token create": {"--from": "--from-network"},
    "quota set": {"--limit": "--hard"},
    "what-if": {"--clusters": "--fleet-file"},
    "drain": {"--selector": "--binding-selector"},
    "plan create": {"--selector": "--binding-selector"},
}


def command_at(path: str) -> tuple[click.Command, click.Context]:
    command: click.Command = fedctl
    context = click.Context(fedctl, info_name="fedctl")
    for name in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(context, name) or pytest.fail(name)
        context = click.Context(command, info_name=name, parent=context)
    return command, context


@pytest.mark.parametrize("path", OPTIONS)
def test_options_have_their_old_names_too(path: str) -> None:
    command, context = command_at(path)
    for old, new in OPTIONS[path].items():
        (option,) = (option for option in command.params if new in option.opts)
        assert f"{old} " not in command.get_help(context)
        values = []
        for name in (old, new):
            parsed, _, _ = command.make_parser(context).parse_args([name, "a=1"])
            values.append(parsed[option.name])
        assert values[0] == values[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rebalance plan", "plan create"),
        ("rebalance show", "plan show"),
        ("release", "reservation release"),
        ("renew", "reservation renew"),
    ],
)
def test_verbs_have_their_old_names_too(old: str, new: str) -> None:
    assert command_at(old)[0] is command_at(new)[0]
    assert f"  {old.split(maxsplit=1)[0]} " not in fedctl.get_help(click.Context(fedctl))
