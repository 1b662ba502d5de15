"""Records of the audit to messages and back.

Must not verify anything: ``model.audit`` has the chain.
"""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from federation.model.audit import AuditHead, AuditRecord
from federation.v1 import access_pb2 as messages


def record_to_message(record: AuditRecord) -> messages.AuditRecord:
    time = Timestamp()
    time.FromMicroseconds(record.at)
    return messages.AuditRecord(
        id=record.id,
        time=time,
        actor=record.actor,
        credential_id=record.credential_id,
        address=record.address,
        method=record.method,
        objects=record.objects,
        result=record.result,
        reason=record.reason,
        request_sha256=record.request_sha256,
        unrecorded=record.unrecorded,
        seal=record.seal,
        hash=record.hash,
    )


def record_from_message(message: messages.AuditRecord) -> AuditRecord:
    return AuditRecord(
        id=message.id,
        at=message.time.ToMicroseconds(),
        actor=message.actor,
        credential_id=message.credential_id,
        address=message.address,
        method=message.method,
        objects=tuple(message.objects),
        result=message.result,
        reason=message.reason,
        request_sha256=message.request_sha256,
        unrecorded=message.unrecorded,
        seal=message.seal,
        hash=message.hash,
    )


def head_to_message(head: AuditHead) -> messages.AuditHead:
    return messages.AuditHead(
        seal=head.seal, hash=head.hash, pruned_seal=head.pruned_seal, pruned_hash=head.pruned_hash
    )


def head_from_message(message: messages.AuditHead) -> AuditHead:
    return AuditHead(
        seal=message.seal,
        hash=message.hash,
        pruned_seal=message.pruned_seal,
        pruned_hash=message.pruned_hash,
    )
