"""How many examples hypothesis tries, and whether they are the same ones on every run.

Must not change what a test is about: only how long it looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import HealthCheck, settings

REPEATABLE = "repeatable"
BRIEF = "brief"
EXPLORE = "explore"
# How many examples a test tries for each that it says itself: `make test` runs the brief profile.
SHARES = {BRIEF: Fraction(1, 3), EXPLORE: Fraction(25)}
# Where hypothesis keeps the settings of a test; there is no public way to change them later.
KEPT = "_hypothesis_internal_use_settings"


def register_profiles() -> None:
    """Load the profile that HYPOTHESIS_PROFILE names: the repeatable one unless it is set.

    A machine that is busy with other tests is slow to generate: that says nothing of the test.
    """
    common = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(REPEATABLE, common, derandomize=True, database=None)
    settings.register_profile(BRIEF, settings.get_profile(REPEATABLE))
    settings.register_profile(EXPLORE, common)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or REPEATABLE)


def change_number(items: Iterable[pytest.Item], profile: str) -> None:
    """Let every test try more or fewer examples than it says itself, as a profile has it."""
    if profile not in SHARES:
        return
    changed = set()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        function = getattr(item.obj, "__func__", item.obj)
        for owner, name in ((function, KEPT), (item.cls, "settings")):
            given = getattr(owner, name, None)
            # A parametrized test is collected several times.
            if isinstance(given, settings) and owner not in changed:
                setattr(owner, name, _scaled(given, SHARES[profile]))
                changed.add(owner)


def _scaled(given: settings, share: Fraction) -> settings:
    return settings(given, max_examples=ceil(given.max_examples * share))
