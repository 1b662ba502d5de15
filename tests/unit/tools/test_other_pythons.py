"""Tests that run on every other Python, too, are there."""

from __future__ import annotations

import pytest

from tools.run_tests import ROOT, TESTS_BY_AGE


@pytest.mark.parametrize("named", sorted(set().union(*TESTS_BY_AGE.values())))
def test_what_is_named_is_there(named: str) -> None:
    path, _, test = named.partition("::")
    assert (ROOT / path).exists()
    if test:
        assert f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")
