"""Pictures of clusters, stored once a minute: their reports, and promises beside them.

A picture is one cluster's, named by the SHA-256 of its content; a round names the pictures of many
clusters at one time. Must not talk to the database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import msgspec

from federation.history.bodies import Body, deflated, inflated, read_body
from federation.history.cluster_rows import MODELS, ModelRow
from federation.history.report_rows import (
    REPORTS,
    OutstandingRow,
    ReportRow,
    outstanding_of_row,
    outstanding_row,
)
from federation.model.cluster import CapacityReport
from federation.model.grades import ResourceModel
from federation.model.pools.values import Pools
from federation.model.reported_pools import reported_pools
from federation.model.reservations import Outstanding


class OpenPromise(NamedTuple):
    """A promise that is in no report yet, and the decision that made it."""

    outstanding: Outstanding
    decision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A cluster: its ``report`` without echoes, and outstanding promises in their packing order.

    Without a report it is None. Grades are those of ``model``.
    """

    model: ResourceModel
    report: CapacityReport | None
    follows_claims: bool
    promised: tuple[OpenPromise, ...]


class _PromiseRow(msgspec.Struct, frozen=True, array_like=True):
    outstanding: OutstandingRow
    decision: str = ""


class _PictureBody(Body, frozen=True):
    """The body of a picture; ``grade_counts`` are the report's, as pairs in ascending order.

    A body that is named by its bytes has no maps with numbers as keys.
    """

    newest: ClassVar[int] = 2

    model: ModelRow
    report: ReportRow | None = None
    follows_claims: bool = False
    promised: tuple[_PromiseRow, ...] = ()
    grade_counts: tuple[tuple[int, int], ...] = ()


class Round(Body, frozen=True):
    """The names of the pictures of some clusters.

    Decisions long before ``since`` (microseconds since 1970, by the database's clock) are in them.
    Of the decisions shortly before and after it, those with the ids ``decided`` are.
    """

    since: int
    pictures: dict[str, bytes]
    decided: frozenset[str] = frozenset()


class KeptPicture(NamedTuple):
    """The body of a picture, and the time and decisions of its round."""

    body: bytes
    since: int
    decided: frozenset[str]


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_PICTURES: Final = msgspec.msgpack.Decoder(_PictureBody)
_ROUNDS: Final = msgspec.msgpack.Decoder(Round)


def packed_picture(
    report: CapacityReport | None,
    pools: Pools | None,
    model: ResourceModel,
    promised: Sequence[OpenPromise],
    *,
    follows_claims: bool,
) -> tuple[bytes, bytes]:
    """Return the name and the body of a picture; ``pools`` are those of the report."""
    grade_counts: tuple[tuple[int, int], ...] = ()
    if report is not None:
        grade_counts = tuple(sorted(report.grade_counts.items()))
        # The time of its last confirmation does not change a picture.
        report = replace(
            report,
            snapshot_time=0.0,
            picture_age_seconds=0.0,
            pools=None if pools is None else reported_pools(pools),
            echoes=(),
            grade_counts={},
        )
    encoded = _ENCODER.encode(
        _PictureBody(
            v=_PictureBody.newest,
            model=MODELS.pack(model),
            report=None if report is None else REPORTS.pack(report),
            follows_claims=follows_claims,
            promised=tuple(
                _PromiseRow(outstanding_row(promise.outstanding), promise.decision)
                for promise in promised
            ),
            grade_counts=grade_counts,
        )
    )
    return hashlib.sha256(encoded).digest(), deflated(encoded)


def unpacked_picture(packed: bytes) -> Picture:
    """A picture whose report has its grade counts again. Raises NewerBody."""
    body = read_body(_PICTURES, inflated(packed)[0], "reports")
    report = None if body.report is None else REPORTS.unpack(body.report)
    if report is not None and body.grade_counts:
        report = replace(report, grade_counts=dict(body.grade_counts))
    return Picture(
        model=MODELS.unpack(body.model),
        report=report,
        follows_claims=body.follows_claims,
        promised=tuple(
            OpenPromise(outstanding_of_row(row.outstanding), row.decision) for row in body.promised
        ),
    )


def packed_round(since: int, pictures: Mapping[str, bytes], decided: frozenset[str]) -> bytes:
    return deflated(
        _ENCODER.encode(
            Round(v=Round.newest, since=since, pictures=dict(pictures), decided=decided)
        )
    )


def unpacked_round(body: bytes) -> Round:
    """Raises NewerBody."""
    return read_body(_ROUNDS, inflated(body)[0], "rounds of reports")
