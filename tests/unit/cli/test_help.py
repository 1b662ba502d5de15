"""Every verb explains itself, with an example of how it is called."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl


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
