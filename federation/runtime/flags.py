"""Settings on the command line: a flag for every one, and the table that ``show-config`` prints.

Must not load the settings itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from federation.runtime.options import LoadedOptions, OptionTable
from federation.runtime.terminal import json_text, say, say_lines
from federation.runtime.yaml_texts import yaml_text

Command = Callable[..., None]
# Settings out of the file that --config names and of the flags, by setting name.
Load = Callable[[Path | None, Mapping[str, Any]], Any]


def with_flags(options: OptionTable, load: Load) -> Callable[[Command], Command]:
    """Give a command a flag for every setting, and what ``load`` makes of them in their place."""

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def loading(config: Path | None, **arguments: Any) -> None:
            flags = {option.name: arguments.pop(option.name) for option in options}
            command(load(config, flags), **arguments)

        for option in reversed(options.options):
            parameters: dict[str, Any] = {"help": option.help}
            if option.switch:
                parameters |= {"is_flag": True, "flag_value": "true", "default": None}
            else:
                parameters |= {"metavar": "VALUE", "multiple": option.many}
                if option.default:
                    parameters["help"] += f" Default: {option.default}."
            loading = click.option(option.flag, option.name, **parameters)(loading)
        path = click.Path(path_type=Path, dir_okay=False)
        text = f"YAML file of settings; {options.config_variable} names it too."
        return click.option("--config", type=path, help=text)(loading)

    return decorated


def print_config(loaded: LoadedOptions, output: str) -> None:
    """Print every setting and where it came from, secrets masked, as text, JSON or YAML."""
    rows = loaded.shown()
    if output == "json":
        say_lines(json_text(rows, indent=2))
    elif output == "yaml":
        say_lines(yaml_text(rows).rstrip("\n"))
    else:
        widths = [max(len(row[column]) for row in rows) for column in ("name", "value")]
        for row in rows:
            name, value = row["name"].ljust(widths[0]), row["value"].ljust(widths[1])
            say(f"{name}  {value}  {row['origin']}")
