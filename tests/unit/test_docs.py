"""The documentation, held to the programs: its commands exist, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from estimator.__main__ import cli as estimator
from federation.__main__ import main as federation
from federation.cli.__main__ import fedctl
from federation.cli.arguments import Kinds

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS: Mapping[str, click.Command] = {
    "fedctl": fedctl,
    "federation": federation,
    "estimator": estimator,
}
BLOCKS = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`((?:fedctl|federation|estimator) [a-z-][^`\n]*)`")
CALL = re.compile(
    r"^(?:\$ |[A-Z_]+=\S+ )*(?:\.venv/bin/)?((?:fedctl|federation|estimator) [a-z-].*)$"
)


def commands(text: str) -> Iterator[str]:
    for block in BLOCKS.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if call := CALL.match(line.strip()):
                yield call[1].partition("  #")[0]
    yield from INLINE.findall(BLOCKS.sub("", text))


def options_of(command: click.Command) -> Mapping[str, click.Option]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {name: each for each in options for name in (*each.opts, *each.secondary_opts)}


def wrong(call: str) -> str:
    """What in it does not exist; the last of ``a|b|c`` stands for all of them then."""
    name, *words = shlex.split(call)
    command: click.Command = PROGRAMS[name]
    known = dict(options_of(command))
    awaited = False
    for word in words:
        option, _, value = word.partition("=")
        if awaited:
            awaited = False
        elif word.startswith("-") and len(word) > 1:
            if option in {"-h", "--help"}:
                continue
            if option not in known:
                return f"{command.name} has no option {option}"
            awaited = not value and not known[option].is_flag and not known[option].count
        elif isinstance(command, click.Group):
            context = click.Context(command)
            kind = word.partition("/")[0] if isinstance(command, Kinds) else word
            found = [command.get_command(context, each) for each in kind.split("|")]
            if found[-1] is None or None in found:
                return f"{command.name} has no command {word}"
            command = found[-1]
            known |= options_of(command)
    return ""


def pages_with_commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if page.parent.name == "reference":
            continue  # It is made of the commands.
        for call in dict.fromkeys(commands(page.read_text(encoding="utf-8"))):
            yield page.relative_to(ROOT).as_posix(), call


def test_every_command_exists_with_its_options() -> None:
    tried = list(pages_with_commands())
    assert len(tried) > 200
    faults = [(page, call, fault) for page, call in tried if (fault := wrong(call))]
    assert not faults


def test_a_command_that_does_not_exist_is_found() -> None:
    assert wrong("fedctl get nothing") == "get has no command nothing"
    assert wrong("fedctl get clusters --colour red") == "clusters has no option --colour"
    assert not wrong("fedctl plan create drain member1 --moves-at-once=5")


LINKS = re.compile(r"(?:\]\(|^\[[^\]]+\]: )([^)#\s]*)(?:#([^)\s]*))?\)?", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """What its headings are called in links, as GitHub calls them."""
    text = BLOCKS.sub("", page.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {each.strip().replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    known: dict[Path, set[str]] = {}
    for target, anchor in LINKS.findall(page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            if there not in known:
                known[there] = anchors_of(there)
            assert anchor in known[there], f"{target}#{anchor}"
