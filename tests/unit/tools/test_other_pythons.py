"""Tests that run on every other Python, too, are there."""

from __future__ import annotations

import pytest

from tools.other_pythons import ROOT, TESTS, TESTS_BETWEEN, TESTS_OF_NEWEST


@pytest.mark.parametrize("named", [*TESTS, *TESTS_BETWEEN, *TESTS_OF_NEWEST])
def test_what_is_named_is_there(named: str) -> None:
    path, _, test = named.partition("::")
    assert (ROOT / path).exists()
    if test:
        assert f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")
