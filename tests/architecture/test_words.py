"""The word check finds vague names, first words and long sentences, and passes plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_words import ENABLED, enabled_files, violations

LONG_SENTENCE = " ".join(["word"] * 31) + "."
PYTHON, PROTO = Path("a.py"), Path("a.proto")


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("def f(found):\n    pass\n", "a.py:1: 'found' does not say what it holds"),
        ("def f(*, each=1):\n    pass\n", "a.py:1: 'each' does not say what it holds"),
        ("def f(*others):\n    pass\n", "a.py:1: 'others' does not say what it holds"),
        ("def f():\n    left: int = 1\n", "a.py:2: 'left' does not say what it holds"),
        ("def f():\n    a, (kept, *b) = g()\n", "a.py:2: 'kept' does not say what it holds"),
        ("def f():\n    for more in g():\n        pass\n", "'more' does not say what it holds"),
        ("def f():\n    with g() as made:\n        pass\n", "'made' does not say what it holds"),
        ("def f():\n    if (told := g()):\n        pass\n", "'told' does not say what it holds"),
        ("f = lambda asked: 1\n", "a.py:1: 'asked' does not say what it holds"),
        ("a = [each for each in b]\n", "a.py:1: 'each' does not say what it holds"),
        (
            "def f(a):\n    match a:\n        case [*most]:\n            pass\n",
            "a.py:3: 'most' does not say what it holds",
        ),
        ("MOST_WATCHES = 5\n", "a.py:1: 'MOST_WATCHES' is called MAX_… or MIN_… here"),
        ('"""What is left."""\n', "a.py:1: begins with 'What': a noun or a verb comes first"),
        (
            'class A:\n    """Nobody."""\n',
            "a.py:2: begins with 'Nobody': a noun or a verb comes first",
        ),
        (f'"""Title.\n\n{LONG_SENTENCE}\n"""\n', "a.py:1: 31 words, at most 30: 'word word"),
        ("# " + "word " * 16 + "\n# " + "word " * 15 + "\n", "a.py:1: 31 words, at most 30"),
    ],
)
def test_a_python_file_with_one_fault_has_that_finding(source: str, finding: str) -> None:
    findings = list(violations(PYTHON, source))

    assert len(findings) == 1
    assert finding in findings[0]


@pytest.mark.parametrize(
    "source",
    [
        "def f(found_rows):\n    pass\n",
        "class A:\n    found: int\n",
        "# What a comment begins with is free.\n",
        f'"""Title.\n\nText:\n\n    {LONG_SENTENCE}\n"""\n',
        f'"""Title.\n\n{"Two short. Sentences. " * 20}\n"""\n',
        '"""One ``' + "word " * 40 + '`` is a piece of code."""\n',
        "# " + "word " * 20 + "\n\n# " + "word " * 20 + "\n",
        "MAX_WATCHES = 5\n",
    ],
)
def test_a_plain_python_file_has_no_finding(source: str) -> None:
    assert list(violations(PYTHON, source)) == []


def test_comments_of_protos_are_checked_as_docstrings_are() -> None:
    source = f"""syntax = "proto3";
// Whoever asks.
message A {{
  string link = 1; // https://example.org is an address
  // {LONG_SENTENCE}
  string name = 2;
}}
"""

    assert [finding.split(":", 2)[1] for finding in violations(PROTO, source)] == ["2", "5"]


def test_each_enabled_place_holds_the_rules() -> None:
    root = Path(__file__).parents[2]

    assert ENABLED
    assert [
        finding
        for path in enabled_files(root)
        for finding in violations(path, (root / path).read_text(encoding="utf-8"))
    ] == []
