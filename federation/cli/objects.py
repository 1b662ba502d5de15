"""Objects that files hold for verbs that connect: all of them checked before the first call.

Must not connect. Few verbs read files: they import this when they do.
"""

from __future__ import annotations

from collections.abc import Sequence

from federation.cli import inputs
from federation.codec.clusters import cluster_from_message
from federation.codec.document_files import documents_of
from federation.codec.documents import Document
from federation.codec.strict import message_from_document
from federation.codec.unread import dropped_from_documents
from federation.codec.workloads import FileBindings, file_bindings
from federation.model.errors import InvalidRequest
from federation.v1 import resource_pb2


def clusters_in(paths: Sequence[str]) -> list[resource_pb2.Cluster]:
    """The clusters in files, all of them checked: nothing is changed when one is wrong."""
    return clusters_of(documents_of(paths))


def clusters_of(documents: Sequence[Document]) -> list[resource_pb2.Cluster]:
    """The same of documents that are read."""
    if not documents:
        raise InvalidRequest.of("files", "hold no Cluster")
    messages = []
    for (path, _), document in zip(inputs.by_name(documents), documents, strict=True):
        if document.get("kind") != "Cluster":
            raise InvalidRequest.of(
                f"{path}.kind", f"must be Cluster, not {document.get('kind')!r}"
            )
        message = message_from_document(document, resource_pb2.Cluster, path)
        cluster_from_message(message, path)
        messages.append(message)
    inputs.warn_of_unread(dropped_from_documents(documents))
    return messages


def bindings_in(paths: Sequence[str]) -> FileBindings:
    """What the files hold, all of it checked: nothing is decided when one of them is wrong."""
    return bindings_of(documents_of(paths))


def bindings_of(documents: Sequence[Document]) -> FileBindings:
    """The same of documents that are read."""
    held = file_bindings(documents)
    held.check_placed()
    inputs.warn(held.notes)
    if not held.bindings:
        raise InvalidRequest.of("files", "hold nothing to schedule")
    named = [(f"ResourceBinding/{each.metadata.name}", each) for each in held.bindings]
    inputs.bindings_of(named, ties=None)
    inputs.warn_of_unread(dropped_from_documents(held.documents))
    return held
