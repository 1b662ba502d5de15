"""The one table of kinds: each kind by its names and options, and what a kind does not take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.cli.audit import RECORDS
from federation.cli.kinds import RowPrinter
from federation.cli.lists import Listing
from federation.cli.output import Format, Output
from tests.unit.cli.canned import CLUSTERS, DECISION, FLOOD, RECORD, answer_with
from tests.unit.cli.canned_events import GANG

# By kind: the name of its first row, as `-o name` has it.
ROWS = {
    "audit": "record/12",
    "bindings": "binding/shop/checkout-deployment",
    "clusters": "cluster/member1",
    "contexts": "context/here",
    "decisions": f"decision/{DECISION}1",
    "gangs": "gang/ml/training",
    "join-tokens": "join-token/3f1c9a7e5b2d4680",
    "joiners": "cluster/member3",
    "plans": "plan/7",
    "queue": "binding/shop/search-deployment",
    "quotas": "quota/shop",
    "reservations": "reservation/member1/shop/checkout-deployment",
    "tokens": "token/tok-91d0aa54c2e3f708",
}
NAMESPACED = {"audit", "bindings", "decisions", "gangs", "queue", "quotas", "reservations"}
LABELLED = {"bindings", "clusters", "joiners"}


@pytest.fixture(autouse=True)
def _answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer_with(
        monkeypatch,
        **GANG,
        get_cluster=CLUSTERS[0],
    )
    contexts = tmp_path / "contexts.yaml"
    contexts.write_text(
        "current-context: here\ncontexts: {here: {endpoint: a:1}, prod: {endpoint: b:2}}"
    )
    monkeypatch.setenv("FEDCTL_CONFIG", str(contexts))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(fedctl, [*arguments])


def names(*arguments: str) -> list[str]:
    result = call(*arguments, "-o", "name")
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize("kind", ROWS)
def test_each_kind_is_listed_and_named(kind: str) -> None:
    row = ROWS[kind]
    assert names("get", kind)[0] == row
    assert names("get", kind.removesuffix("s")) == names("get", kind)
    name = row.partition("/")[2]
    assert names("get", kind, name)[0] == row
    # Rows of these two are named as those of another kind.
    if kind not in ("queue", "joiners"):
        assert names("get", row.partition("/")[0].replace("record", "audit") + f"/{name}")
    document = json.loads(call("get", kind, name, "-o", "json").stdout)
    assert isinstance(document, dict)
    assert isinstance(json.loads(call("get", kind, "-o", "json").stdout), list)
    assert call("get", kind, "-A", "--no-headers").exit_code == 0


@pytest.mark.parametrize("kind", ROWS)
def test_a_kind_says_which_options_it_does_not_have(kind: str) -> None:
    within = call("get", kind, "-n", "shop")
    labelled = call("get", kind, "-l", "tier=gold")
    followed = call("get", kind, "-w") if kind == "contexts" else None
    refusals = [
        (within, f"-n: {kind} are in no namespace", kind in NAMESPACED),
        (labelled, f"-l: {kind} have no labels", kind in LABELLED),
        (followed, "-w: contexts do not change", followed is None),
    ]
    for result, words, is_taken in refusals:
        if result is not None:
            assert (result.exit_code, words in result.stderr) == (
                (0, False) if is_taken else (2, True)
            ), result.output


def test_several_names_come_in_their_order() -> None:
    assert names("get", "queue", "shop/batch-job", "web-deployment", "-n", "shop") == [
        "binding/shop/batch-job",
        "binding/shop/web-deployment",
    ]
    assert names("get", "contexts", "prod", "context/here") == ["context/prod", "context/here"]
    assert names("get", "tok", "tok-3f1c9a7e5b2d4680") == ["token/tok-3f1c9a7e5b2d4680"]
    missing = call("get", "tokens", "tok-none")
    assert (missing.exit_code, missing.stderr) == (
        1,
        "error: There is no token 'tok-none' in this list.\n",
    )


def test_a_namespace_selects_rows() -> None:
    assert names("get", "quotas", "-n", "other") == []
    assert names("get", "reservations", "-n", "ml") == []
    assert len(names("get", "reservations", "-n", "shop")) == 3
    assert names("get", "audit", "-n", "shop") == []


def test_a_gang_shows_how_it_waits() -> None:
    heading, row = call("get", "gangs").stdout.splitlines()
    assert dict(zip(heading.split("  "), row.split("  "), strict=False))
    assert row.split()[:6] == ["ml", "training", "3", "2", "1", "2h"]
    assert "in 30m" in row
    document = json.loads(call("get", "gang", "training", "-n", "ml", "-o", "json").stdout)
    assert (document["bindings"], document["placed"]) == (["driver", "worker"], 1)
    assert (document["waiting"], document["wait"]["gang"]) == (1, "training")


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("token list", "tokens"),
        ("join-token list", "join-tokens"),
        ("quota list", "quotas"),
        ("audit list", "audit"),
        ("plan list", "plans"),
        ("reservation list", "reservations"),
        ("rebalance list", "plans"),
        ("config get-contexts", "contexts"),
    ],
)
def test_lists_of_other_verbs_are_the_same(verb: str, kind: str) -> None:
    for options in ((), ("-o", "json"), ("-o", "name"), (ROWS[kind].partition("/")[2],)):
        assert call(*verb.split(), *options).stdout == call("get", kind, *options).stdout


@pytest.mark.parametrize(
    ("described", "verb"),
    [(f"decision {DECISION}1", f"explain {DECISION}1"), ("plan 7", "plan show 7")],
)
def test_decisions_and_plans_are_described_too(described: str, verb: str) -> None:
    for options in ((), ("-o", "json"), ("-o", "name")):
        shown = call("describe", *described.split(), *options)
        assert (shown.exit_code, shown.stdout) == (0, call(*verb.split(), *options).stdout)


def test_an_unknown_kind_names_the_kinds() -> None:
    refused = call("get", "pods")
    assert refused.exit_code == 2
    assert f"The kinds are {', '.join(ROWS)}." in refused.stderr


def test_what_is_recorded_never_ends(capsys: pytest.CaptureFixture[str]) -> None:
    listing = Listing(output=Output(format=Format.NAME))
    printer = RowPrinter(RECORDS, listing, [FLOOD])
    printer.replace_all([RECORD])
    assert capsys.readouterr().out.splitlines() == ["record/11", "record/12"]
