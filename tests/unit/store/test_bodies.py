"""Bodies of older releases are read; those with unknown keys or of newer versions are not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from federation.codec.decisions import decision_to_message
from federation.history.bodies import NewerBody, UnknownKey, deflated, inflated
from federation.scheduler.trace import unread_trace
from federation.services.journal import (
    Change,
    UnknownChange,
)
from federation.services.packed_traces import (
    packed_preview,
    packed_traces,
    unpacked_preview,
    unpacked_trace,
)
from federation.services.values import DecisionRecord, ReportEvidence
from federation.store.decisions import SKIPPED, StoredDecision
from federation.store.journal import change_of, packed_change
from federation.store.reports import ReportReader, packed_report
from federation.store.reservations import packed_reservations, reservations_of
from lab.stored_values import (
    ADVANCED,
    BINDING,
    DECIDED,
    DELETED,
    HELD,
    PLAIN,
    REPORT,
    VERDICT,
)

Fields = dict[str, Any]
Edit = Callable[[Fields], object]


def edited(packed: bytes, edit: Edit) -> bytes:
    body = msgspec.msgpack.decode(packed, strict=False)
    edit(body)
    return msgspec.msgpack.encode(body)


def edited_change(change: Change) -> Callable[[Edit], object]:
    def read(edit: Edit) -> object:
        kind, body = packed_change(change)
        return change_of(kind, edited(body, edit), change.nonce)

    return read


def edited_reservations(edit: Edit) -> object:
    row = SimpleNamespace(namespace="shop", name="web", uid="", lease_expires_at=None, body=b"")
    row.body = edited(packed_reservations(HELD), edit)
    return reservations_of([cast(Any, row)])[0]


def edited_report(edit: Edit) -> object:
    body = msgspec.json.decode(packed_report(REPORT))
    edit(body)
    return ReportReader().read(msgspec.json.encode(body).decode())


def edited_trace(edit: Edit) -> object:
    """Both parts of the body at once: their fields have different names."""
    ((packed, _),) = packed_traces([VERDICT])
    shared_part, rest = inflated(packed)
    shared = msgspec.msgpack.decode(shared_part)
    body = {**shared, **msgspec.msgpack.decode(inflated(rest)[0], strict=False)}
    edit(body)
    own = {name: body.pop(name) for name in ("trace", "promises", "inputs") if name in body}
    parts = [deflated(msgspec.msgpack.encode(part)) for part in (body, own)]
    trace, evidence, promises = unpacked_trace(b"".join(parts))
    return {"trace": trace.to_plain()}, evidence, promises


def edited_preview(edit: Edit) -> object:
    body = msgspec.json.decode(inflated(packed_preview(BINDING, VERDICT, wait=False).body)[0])
    edit(body)
    binding, verdict, wait = unpacked_preview(deflated(msgspec.json.encode(body)))
    return binding, verdict.decision.to_plain(), verdict.evidence, verdict.promises, wait


@dataclass(frozen=True, kw_only=True)
class Kind:
    """``read`` gives what is read of a body that was edited; ``whole`` is that of one that was not.

    ``missing`` says of a field what is read without it; ``inner`` names a field with fields.
    """

    read: Callable[[Edit], object]
    whole: object
    missing: tuple[str, object]
    inner: str = ""


KINDS: Mapping[str, Kind] = {
    "binding": Kind(
        read=edited_change(DECIDED),
        whole=DECIDED,
        missing=("owner", replace(DECIDED, owner=None)),
        inner="owner",
    ),
    "cluster": Kind(
        read=edited_change(DELETED), whole=DELETED, missing=("emptied", replace(DELETED, emptied=0))
    ),
    "report advanced": Kind(read=edited_change(ADVANCED), whole=ADVANCED, missing=("", ADVANCED)),
    "reservations": Kind(
        read=edited_reservations,
        whole=HELD,
        missing=(
            "finished",
            replace(HELD, reservations=(HELD.reservations[0]._replace(finished=0),)),
        ),
        inner="owner",
    ),
    "report": Kind(
        read=edited_report,
        whole=REPORT,
        missing=("report.pools", replace(REPORT, pools=None)),
        inner="report",
    ),
    "trace": Kind(
        read=edited_trace,
        whole=({"trace": PLAIN["trace"]}, VERDICT.evidence, VERDICT.promises),
        missing=("promises", ({"trace": PLAIN["trace"]}, VERDICT.evidence, ())),
        inner="trace",
    ),
    "preview": Kind(
        read=edited_preview,
        whole=(BINDING, PLAIN, VERDICT.evidence, VERDICT.promises, False),
        missing=("evidence", (BINDING, PLAIN, ReportEvidence(), VERDICT.promises, False)),
        inner="decision",
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def raise_version(body: Fields) -> None:
    """With another type in a field of an old name, too."""
    body.update({name: [body[name]] for name in body if name != "v"})
    body["v"] = 2


@kinds
def test_every_body_carries_its_version(kind: Kind) -> None:
    versions: list[object] = []
    assert kind.read(lambda body: versions.append(body["v"])) == kind.whole
    assert versions == [1]


@kinds
def test_keys_that_are_unknown_are_refused(kind: Kind) -> None:
    places = [()]
    if kind.inner:
        places.append((kind.inner,))
    for place in places:
        key = ".".join((*place, "colour"))

        def add(body: Fields, place: tuple[str, ...] = place) -> None:
            for name in place:
                body = body[name]
            body["colour"] = {"deep": [1]}

        if isinstance(kind.whole, Change):
            assert isinstance(kind.read(add), UnknownChange)
        else:
            with pytest.raises(UnknownKey, match=f"with the key '{key}'"):
                kind.read(add)


@kinds
def test_fields_that_are_missing_have_their_defaults(kind: Kind) -> None:
    path, without = kind.missing

    def drop(body: Fields) -> None:
        *outer, name = path.split(".")
        fields = body[outer[0]] if outer else body
        del fields[name]

    if path:
        assert kind.read(drop) == without
    else:
        with pytest.raises(msgspec.ValidationError, match="missing required field"):
            kind.read(lambda body: body.pop("epoch"))


@kinds
@pytest.mark.parametrize("edit", [raise_version, lambda body: body.update(v=2)])
def test_a_newer_version_is_not_read(kind: Kind, edit: Edit) -> None:
    if isinstance(kind.whole, Change):
        read = kind.read(edit)
        assert isinstance(read, UnknownChange)
        assert read.version == 2
        return
    with pytest.raises(NewerBody, match=r"^[^\n]+ of version 2, [^\n]+$") as raised:
        kind.read(edit)
    assert raised.value.reason == "SCHEMA_AHEAD"


def test_decisions_of_a_newer_release_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    SKIPPED.over()
    caplog.clear()
    row = SimpleNamespace(
        id="d1",
        namespace="shop",
        name="web",
        binding_generation=1,
        created_at=datetime.fromtimestamp(1000.0, UTC),
        outcome=VERDICT.decision.outcome.value,
        clusters=[],
        remainder=0,
        reason="",
        trace=deflated(msgspec.msgpack.encode({"v": 2})),
    )
    for _ in range(3):
        record = StoredDecision(cast(Any, row)).unpacked()
        assert len(record.decision.trace.clusters) == 0
    (told,) = caplog.records
    assert told.levelno == logging.ERROR
    assert "of version 2" in getattr(told, "fields", {})["why"]
    # Other tests hear of it again.
    SKIPPED.over()


def test_a_body_that_nobody_can_read_is_of_no_newer_version() -> None:
    with pytest.raises(msgspec.ValidationError):
        edited_reservations(lambda body: body.update(clusters=7))


def test_a_trace_that_is_not_read_is_shown_as_its_warning() -> None:
    record = DecisionRecord(
        id="d1",
        namespace="shop",
        name="web",
        binding_generation=1,
        created_at=1000.0,
        decision=replace(VERDICT.decision, trace=unread_trace("it is of a newer release")),
    )
    message = decision_to_message(record, trace=True)
    assert list(message.warnings) == ["it is of a newer release"]
    assert len(message.trace.clusters) == 0
    assert [each.replicas for each in message.clusters] == [4]
