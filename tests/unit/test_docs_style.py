"""Style of the first pages that a stranger reads: short, plain sentences and defined links.

Must not judge what the pages say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = ROOT / "README.md"
PLAIN_PAGES: Final = (
    README,
    ROOT / "docs" / "README.md",
    ROOT / "docs" / "limits.md",
    *sorted((ROOT / "docs" / "start").glob("*.md")),
)
MAX_README_LINES: Final = 120
MAX_README_COLUMNS: Final = 60
MAX_SENTENCE_WORDS: Final = 30
# Words that begin a sentence without a noun, or with one that the sentence before holds.
FORBIDDEN_FIRST_WORDS: Final = frozenset(
    {"what", "who", "whoever", "those", "such", "so", "of", "where", "as", "nobody", "none"}
)
BLOCKS: Final = re.compile(r"^ *```.*?^ *```|<!--.*?-->", re.DOTALL | re.MULTILINE)
DEFINITIONS: Final = re.compile(r"^\[([^\]]+)\]: .*$", re.MULTILINE)
USES: Final = re.compile(r"\[[^\]]+\]\[([^\]]+)\]")
LINKS: Final = re.compile(r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]+\])")
# A heading, an item of a list and a row of a table each begin a paragraph of their own.
PARAGRAPHS: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:#|- |\d+\. |\|))")
MARKS: Final = re.compile(r"^\s*(?:#+ |- |\d+\. )")
SENTENCES: Final = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\"(])")


def prose_of(text: str) -> str:
    """Return the text without blocks of code, comments, definitions and targets of links."""
    return LINKS.sub(r"\1", DEFINITIONS.sub("", BLOCKS.sub("", text))).replace("*", "")


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a page, headings and items of lists included."""
    for paragraph in PARAGRAPHS.split(prose_of(text)):
        for sentence in SENTENCES.split(MARKS.sub("", paragraph)):
            if words := " ".join(sentence.split()):
                yield words


def style_faults_of(text: str) -> list[str]:
    """Return the sentences that are too long or begin with a forbidden word."""
    return [
        sentence
        for sentence in sentences_of(text)
        if len(sentence.split()) > MAX_SENTENCE_WORDS
        or sentence.split()[0].strip(",.:").lower() in FORBIDDEN_FIRST_WORDS
    ]


@pytest.mark.parametrize("page", PLAIN_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_sentences_are_short_and_begin_with_a_subject(page: Path) -> None:
    assert not style_faults_of(page.read_text(encoding="utf-8"))


def test_the_readme_is_short_and_narrow() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_README_LINES
    assert not [
        line
        for line in lines
        if len(line) > MAX_README_COLUMNS and not line.startswith(("<!--", "["))
    ]


def test_every_named_link_of_the_readme_is_defined_and_used() -> None:
    text = README.read_text(encoding="utf-8")
    assert set(DEFINITIONS.findall(text)) == set(USES.findall(text))


def test_faults_of_style_are_found() -> None:
    long = " ".join(["word"] * (MAX_SENTENCE_WORDS + 1))
    text = f"# A heading\n\nA sentence. {long.capitalize()}.\n- Who asks\n- [Such](a.md) a link\n"
    assert style_faults_of(text) == [f"{long.capitalize()}.", "Who asks", "Such a link"]
    assert style_faults_of("```\nWho\n```\n<!-- Who -->\nIt is `so`.\n") == []
