"""Which modules a verb may import: people wait for all of them. Figures are in bench_fedctl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from federation.cli.__main__ import fedctl
from federation.cli.offline import verbs as offline_verbs
from federation.cli.verbs import DESCRIBED, LISTED, VERBS, describe, get
from federation.model.estimate import MAX_REPLICAS, Merge, ModelRule
from federation.simulation.steps import FailoverRules
from lab.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
# Nobody who connects needs these.
HEAVY = {"numpy", "sqlalchemy", "kubernetes", "msgspec", "zstandard", "jsonpath", "yaml"}
# Verbs on files read them with these; estimate does both.
ON_FILES = {
    "estimate": {"numpy", "yaml"},
    "score": {"numpy", "yaml"},
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
        command = fedctl.get_command(click.Context(fedctl), verb)
        command.get_help(click.Context(command))
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


def test_help_and_completion_of_kinds_wait_for_no_messages() -> None:
    assert imported(["get", "describe"], "google.protobuf", "grpc", "asyncio") == {
        "get": set(),
        "describe": set(),
    }


def test_help_and_completion_of_get_wait_for_no_grpc() -> None:
    assert imported(["get", "describe", "events"], "grpc", "asyncio") == {
        "get": set(),
        "describe": set(),
        "events": set(),
    }


def test_to_estimate_from_files_waits_for_no_scheduler_and_no_grpc() -> None:
    unneeded = ("grpc", "estimator", "federation.scheduler", "federation.capacity.reserve")
    assert imported(["estimate"], *unneeded) == {"estimate": set()}


def test_who_asks_what_decides_from_files_for_help_waits_for_nothing() -> None:
    verbs = ["simulate", "what-if"]
    heavy = (*HEAVY, "google.protobuf", "federation.codec", "federation.scheduler")
    assert imported(verbs, *heavy) == {verb: set() for verb in verbs}


def test_who_names_no_configuration_and_one_process_waits_for_neither() -> None:
    what = "federation.cli.offline.simulating", "federation.cli.offline.traces"
    unneeded = ("importlib.metadata", "multiprocessing", "concurrent.futures.process")
    code = f"import sys, {what[0]}, {what[1]}; print(*{{*{unneeded!r}}} & {{*sys.modules}})"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert loaded.split() == []


def test_to_decide_from_files_waits_for_no_more_than_it_needs() -> None:
    module = "federation.cli.offline.simulating"
    code = f"import sys, {module}; print(*{{*{HEAVY!r}}} & {{*sys.modules}})"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert set(loaded.split()) == {"numpy", "yaml"}


def test_options_know_the_words_and_limits_of_what_they_do_not_load() -> None:
    assert tuple(ModelRule) == offline_verbs.MODEL_RULES
    assert tuple(Merge) == offline_verbs.MERGES
    assert (
        FailoverRules()._asdict()
        | {
            "lost_seconds": offline_verbs.DEFAULT_LOST_SECONDS,
            "preempted_replicas": offline_verbs.MAX_REPLICAS,
            "preempted_replicas_of_namespace": offline_verbs.MAX_OF_NAMESPACE,
        }
        == FailoverRules()._asdict()
    )
    assert {*FailoverRules._fields} >= {*offline_verbs.FAILOVER_LIMITS}
    assert offline_verbs.MAX_COUNTED == MAX_REPLICAS


def test_what_reads_files_waits_for_what_reads_them() -> None:
    assert imported(["estimate"], *HEAVY)["estimate"] <= ON_FILES["estimate"]


def test_the_list_of_verbs_says_what_they_say() -> None:
    context = click.Context(fedctl)
    for name, verb in VERBS.items():
        command = fedctl.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(200) == verb.words
        # One line each, at 80 columns.
        assert len(verb.words) <= 60


def test_the_list_of_kinds_fits_a_line() -> None:
    for verb in (get, describe):
        context = click.Context(verb)
        words = [LISTED, DESCRIBED][verb is describe]
        for name in verb.list_commands(context):
            assert verb.get_command(context, name) is not None
            assert len(words[name].words) <= 45
            assert words[name].words in verb.get_help(context)
