"""Tables on terminals of any width, and in pipes: nothing is cut, names are whole."""

from __future__ import annotations

import click
import pytest

from federation.cli import output as show

COLUMNS = ["CLUSTER", "READY", "REGION", "CPU FREE", "NODES", "WHY"]
LONG = "a-cluster-whose-name-has-forty-eight-characters1"
ROWS = [
    ("member1", "True", "eu-central-1", "12.5", 24, "selected; holds a remainder seat"),
    (LONG, "False,AgentSilent,Cordoned", "us-east-1", "3", 3, "TaintToleration: not tolerated"),
]


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int | None
) -> tuple[list[str], str]:
    """The lines, and what is said beside them; None for a pipe."""
    monkeypatch.setattr(show, "_is_terminal", lambda: width is not None)
    monkeypatch.setenv("COLUMNS", str(width or 10))
    show.print_table(
        COLUMNS, ROWS, least=["NODES", "REGION", "CPU FREE"], prose=["WHY"], empty="Nothing."
    )
    shown = capsys.readouterr()
    return shown.out.splitlines(), shown.err


GOLDEN = {
    60: [
        f"{'CLUSTER':<50}{'READY':<28}WHY",
        f"{'member1':<50}{'True':<28}selected; holds a",
        f"{'':<78}remainder seat",
        f"{LONG}  False,AgentSilent,Cordoned  TaintToleration: not",
        f"{'':<78}tolerated",
    ],
    120: [
        f"{'CLUSTER':<50}{'READY':<28}CPU FREE  WHY",
        f"{'member1':<50}{'True':<28}12.5      selected; holds a remainder seat",
        f"{LONG}  False,AgentSilent,Cordoned  3         TaintToleration: not tolerated",
    ],
}


@pytest.mark.parametrize("width", GOLDEN)
def test_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    lines, said = printed(monkeypatch, capsys, width)
    assert lines == GOLDEN[width]
    assert said.startswith("too narrow for NODES, REGION")


@pytest.mark.parametrize("width", [10, 40, 60, 80, 100, 120, 140, 160, 200, None])
def test_names_and_states_are_whole_at_any_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int | None
) -> None:
    lines, said = printed(monkeypatch, capsys, width)
    assert any(line.startswith(f"{LONG}  False,AgentSilent,Cordoned") for line in lines)
    words = " ".join(lines).split()
    assert all(word in words for *_, why in ROWS for word in str(why).split())
    if width is None or width >= 160:
        assert len(lines) == 1 + len(ROWS)
        assert said == ""
    assert "…" not in "".join(lines)


@pytest.mark.parametrize(("width", "lines"), [(80, []), (None, ["A  B"])])
def test_an_empty_table_says_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int | None,
    lines: list[str],
) -> None:
    monkeypatch.setattr(show, "_is_terminal", lambda: width is not None)
    show.print_table(["A", "B"], [], empty="No clusters.")
    shown = capsys.readouterr()
    assert shown.out.splitlines() == lines
    assert shown.err == "No clusters.\n"


def test_facts_wrap_and_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "_is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    show.print_facts([("Name", LONG), ("Reason", "no cluster has room for it, and so it waits")])
    assert capsys.readouterr().out.splitlines() == [
        f"Name:    {LONG}",
        "Reason:  no cluster has room for it, and so it waits",
    ]
    show.print_facts([("Name", "member1"), ("Reason", "no cluster has room, and so it waits")])
    assert capsys.readouterr().out.splitlines() == [
        "Name:    member1",
        "Reason:  no cluster has room, and so it",
        "         waits",
    ]


def test_everything_is_shown_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    @click.command()
    @show.output_option
    def get(output: show.Output) -> None:
        assert output.is_wide
        lines, said = printed(monkeypatch, capsys, 60)
        shown.extend([lines[0], said])

    get.main(["-o", "wide"], standalone_mode=False)
    heading, said = shown
    assert all(column in heading for column in COLUMNS)
    assert said == ""
