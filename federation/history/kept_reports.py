"""What reports said, and what was promised beside them, as it is kept once a minute.

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
    """What is promised and in no report yet, and the decision that promised it."""

    outstanding: Outstanding
    decision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A cluster: ``report`` without its echoes, None before the first, and what is outstanding, in
    the order in which it is packed. Grades are those of ``model``.
    """

    model: ResourceModel
    report: CapacityReport | None
    follows_claims: bool
    promised: tuple[OpenPromise, ...]


class _PromiseRow(msgspec.Struct, frozen=True, array_like=True):
    outstanding: OutstandingRow
    decision: str = ""


class _PictureBody(Body, frozen=True):
    """``grade_counts`` are the report's, as pairs in ascending order: a body whose bytes name it
    has no maps with keys that are numbers.
    """

    newest: ClassVar[int] = 2

    model: ModelRow
    report: ReportRow | None = None
    follows_claims: bool = False
    promised: tuple[_PromiseRow, ...] = ()
    grade_counts: tuple[tuple[int, int], ...] = ()


class Round(Body, frozen=True):
    """The names of the pictures of some clusters.

    All that was decided long before ``since`` (microseconds since 1970, by the database's clock) is
    in them; of what was decided shortly before and after it, that with the ids ``decided``.
    """

    since: int
    pictures: dict[str, bytes]
    decided: frozenset[str] = frozenset()


class KeptPicture(NamedTuple):
    """A picture's body, with what its round says."""

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
    """Its name and its body. ``report`` says nothing of pools: these are its ``pools``."""
    grade_counts: tuple[tuple[int, int], ...] = ()
    if report is not None:
        grade_counts = tuple(sorted(report.grade_counts.items()))
        # When it was confirmed last is no news of the cluster.
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
                _PromiseRow(outstanding_row(each.outstanding), each.decision) for each in promised
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
            OpenPromise(outstanding_of_row(each.outstanding), each.decision)
            for each in body.promised
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
