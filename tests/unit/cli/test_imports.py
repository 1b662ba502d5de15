"""Which modules a verb may import: people wait for all of them. Figures are in bench_fedctl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from federation.cli.__main__ import VERBS, fedctl
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
# Nobody who connects needs these; rich is for what is drawn on a terminal.
HEAVY = {"numpy", "sqlalchemy", "rich", "kubernetes", "msgspec", "zstandard", "jsonpath", "yaml"}
# What works on files reads them with these; estimate does both, login keeps YAML.
ON_FILES = {
    "config": {"yaml"},
    "estimate": {"numpy", "yaml"},
    "login": {"yaml"},
    "score": {"numpy", "yaml"},
    "simulate": {"numpy", "yaml"},
    "what-if": HEAVY - {"rich", "sqlalchemy", "kubernetes"},
}
ASK = """
import sys
from federation.cli.__main__ import fedctl
import click
verbs, heavy = sys.argv[1].split(","), sys.argv[2].split(",")
for verb in verbs:
    if verb == "--help":
        fedctl.get_help(click.Context(fedctl))
    else:
        fedctl.get_command(click.Context(fedctl), verb)
    print(verb, *(each for each in heavy if each in sys.modules))
"""


def imported(verbs: list[str], *modules: str) -> dict[str, set[str]]:
    """Those of them that are there when each of the verbs has been asked for, one by one."""
    answer = subprocess.run(
        [sys.executable, "-c", ASK, ",".join(verbs), ",".join(modules)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        cwd=ROOT,
    )
    lines = (line.split() for line in answer.stdout.splitlines())
    return {verb: set(found) for verb, *found in lines}


def test_help_waits_for_nothing() -> None:
    heavy = (*HEAVY, "grpc", "asyncio", "ssl", "google.protobuf")
    assert imported(["--help"], *heavy) == {"--help": set()}


def test_what_connects_waits_for_little() -> None:
    light = [verb for verb in VERBS if verb not in ON_FILES]
    assert imported(light, *HEAVY) == {verb: set() for verb in light}


def test_to_estimate_from_files_waits_for_no_scheduler_and_no_grpc() -> None:
    unneeded = ("grpc", "estimator", "federation.scheduler", "federation.capacity.reserve")
    assert imported(["estimate"], *unneeded) == {"estimate": set()}


def test_who_names_no_configuration_and_one_process_waits_for_neither() -> None:
    unneeded = ("importlib.metadata", "multiprocessing", "concurrent.futures.process")
    assert imported(["simulate", "what-if"], *unneeded) == {"simulate": set(), "what-if": set()}


@pytest.mark.parametrize("verb", ["estimate", "simulate"])
def test_what_reads_files_waits_for_what_reads_them(verb: str) -> None:
    assert imported([verb], *HEAVY)[verb] <= ON_FILES[verb]


def test_the_list_of_verbs_says_what_they_say() -> None:
    context = click.Context(fedctl)
    for verb, (_, words) in VERBS.items():
        command = fedctl.get_command(context, verb)
        assert command is not None
        assert command.get_short_help_str(200) == words
