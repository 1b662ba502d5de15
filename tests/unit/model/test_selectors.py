"""Selectors, for one object."""

from __future__ import annotations

import pytest

from federation.model.selectors import matches_labels, matches_requirement
from federation.model.workload import Operator, Requirement

LABELS = {"zone": "a", "cores": "8", "empty": "", "word": "eight"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("zone", "In", (), False),
        ("absent", "In", ("",), False),
        ("zone", "NotIn", ("a",), False),
        ("absent", "NotIn", ("a",), True),
        ("empty", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("cores", "Gt", ("7",), True),
        ("cores", "Gt", ("8",), False),
        ("cores", "Gt", ("-1",), True),
        ("cores", "Gt", ("10",), False),
        ("cores", "Lt", ("10",), True),
        ("cores", "Lt", ("8",), False),
        ("cores", "Gt", ("7", "6"), False),
        ("cores", "Gt", ("seven",), False),
        ("cores", "Gt", ("1_0",), False),
        ("cores", "Lt", ("9223372036854775808",), False),
        ("cores", "Lt", ("99999999999999999999",), False),
        ("word", "Gt", ("7",), False),
        ("absent", "Lt", ("7",), False),
    ],
)
def test_requirements(key: str, operator: str, values: tuple[str, ...], *, matches: bool) -> None:
    requirement = Requirement(key=key, operator=Operator(operator), values=values)
    assert matches_requirement(requirement, LABELS) is matches


def test_every_label_of_a_selector_is_needed() -> None:
    assert matches_labels({}, LABELS)
    assert matches_labels({"zone": "a", "empty": ""}, LABELS)
    assert not matches_labels({"zone": "a", "absent": ""}, LABELS)
