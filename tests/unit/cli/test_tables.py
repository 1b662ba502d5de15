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
    monkeypatch.setattr(show, "is_terminal", lambda: width is not None)
    monkeypatch.setenv("COLUMNS", str(width or 10))
    show.print_table(
        COLUMNS, ROWS, least=["NODES", "REGION", "CPU FREE"], prose=["WHY"], empty="Nothing."
    )
    shown = capsys.readouterr()
    return shown.out.splitlines(), shown.err


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
