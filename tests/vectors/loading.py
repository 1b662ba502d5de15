"""Reads recorded answers: one JSON object a line, beside this file.

Must not judge them: which differences are excused stands in each test.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.grades import Grade, GradeRange, ResourceModel, model_hash
from federation.model.resources import MAX_AMOUNT, amount_of

HERE = Path(__file__).parent
# Of the lines that fail, so many are told in full, and of each line so much.
TOLD, TOLD_CHARACTERS = 5, 200

Line = dict[str, Any]


def read_lines(name: str) -> list[dict[str, Any]]:
    """The lines of ``<name>.jsonl``, in order."""
    with (HERE / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def for_each(lines: Sequence[Line]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of a line, which is its first argument, one test of all lines.

    All are tried, and each that fails is named. As a test each, they would take most of their time
    in being collected, started and reported.
    """

    def of_all(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def try_all(**fixtures: Any) -> None:
            failed: list[str] = []
            errors: list[Exception] = []
            for line in lines:
                try:
                    test(line, **fixtures)
                except Exception as error:  # noqa: BLE001 - whatever it is, the other lines are tried
                    error.add_note(f"line: {json.dumps(line)[:TOLD_CHARACTERS]}")
                    errors.append(error)
                    # A line begins with its name.
                    failed.append(str(next(iter(line.values()))))
            if errors:
                text = f"{len(errors)} of {len(lines)} lines: {', '.join(failed)}"
                raise ExceptionGroup(text, errors[:TOLD])

        _, *fixtures = inspect.signature(test).parameters.values()
        # What pytest reads to know which fixtures to give.
        vars(try_all)["__signature__"] = inspect.Signature(fixtures)
        return try_all

    assert lines
    return of_all


# Karmada gives a set up at the first component that finds no node; here every component that was
# promised is deducted as far as it fits.
SETS_GIVEN_UP = {"m-0234", "m-1389", "m-1464"}


def amounts(quantities: Mapping[str, str] | None) -> dict[str, int]:
    """Recorded quantities in base units, rounded up; none at all for null."""
    return {name: amount_of(name, text) for name, text in (quantities or {}).items()}


def model_of(grades: list[dict[str, Any]] | None) -> ResourceModel:
    """The model of recorded grade minimums; each grade ends where the next begins."""
    if not grades:
        return ResourceModel()
    starts = [amounts(grade["min"]) for grade in grades]
    ends = [*starts[1:], dict.fromkeys(starts[0], MAX_AMOUNT)]
    return ResourceModel(
        grades=tuple(
            Grade(
                grade=grade["grade"],
                ranges=tuple(
                    GradeRange(name=name, min=start[name], max=end[name]) for name in start
                ),
            )
            for grade, start, end in zip(grades, starts, ends, strict=True)
        )
    )


def cluster_of(line: dict[str, Any]) -> ClusterState:
    """The one cluster of a recorded estimate, with its report graded under its model."""
    model = model_of(line["models"])
    return ClusterState(
        cluster=Cluster(name=line["id"], model=model),
        report=CapacityReport(
            epoch=1,
            sequence=1,
            snapshot_time=0.0,
            summary=ResourceSummary(
                allocatable=amounts(line["allocatable"]),
                allocated=amounts(line["allocated"]),
                allocating=amounts(line["allocating"]),
            ),
            nodes=NodeSummary(),
            grade_counts={each["grade"]: each["count"] for each in line["counts"] or ()},
            model_hash=model_hash(model),
        ),
        as_of=0.0,
    )


def is_plain_estimate(line: dict[str, Any]) -> bool:
    """Whether the line asks for single replicas with no workload assumed to be placed already."""
    return line["kind"] == "replicas" and not line.get("assumed")
