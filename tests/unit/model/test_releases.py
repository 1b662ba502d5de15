from __future__ import annotations

import pytest

from federation.model.releases import releases_apart


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("0.1.0", "0.1.9", 0),
        ("0.1.0", "0.2.0rc1", 1),
        ("1.4", "1.3.2.dev3+g12", 1),
        ("1.4.0", "1.1.0", 3),
        ("1.0.0", "2.0.0", 2),
        # Of what cannot be told nothing is said.
        ("0.1.0", "", 0),
        ("0.1.0", "test", 0),
        ("0.1.0", "9" * 100 + ".0", 0),
    ],
)
def test_releases_are_told_by_their_minor_versions(one: str, other: str, apart: int) -> None:
    assert releases_apart(one, other) == releases_apart(other, one) == apart
