"""Files that verbs read: clusters, bindings, requests and options, and files of cases.

Must not connect. Violations name the field and the rule; the first call comes after all checks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Final

from federation.codec import ranges
from federation.codec.clusters import cluster_from_message
from federation.codec.document_files import STANDARD_INPUT, documents_of
from federation.codec.documents import MAX_DOCUMENT_BYTES, Document, read_json
from federation.codec.given_fleets import check_available, read_bindings, read_clusters
from federation.codec.namespace_quotas import quota_from_message
from federation.codec.requirements import read_requirements
from federation.codec.strict import message_from_document
from federation.codec.unread import dropped_from_documents, warning_of
from federation.codec.violations import Violations
from federation.codec.workloads import (
    CLUSTER_KINDS,
    FileBindings,
    file_bindings,
    is_being_deleted,
    shown_name,
)
from federation.model.cluster import ClusterState
from federation.model.errors import FederationError, InvalidRequest, Violation
from federation.model.estimate import EstimateOptions, Merge, ModelRule, Source
from federation.model.placement import Binding, TieBreak
from federation.model.workload import Component, ReplicaRequirements
from federation.runtime.terminal import json_text, say
from federation.v1 import access_pb2, resource_pb2

# A document with the path that its violations are told under.
Placed = tuple[str, object]

TYPE_META: Final = ("apiVersion", "kind")
# Bindings that a warning names.
MAX_NAMED: Final = 10
SOURCES: Final = {source.name.lower(): source for source in Source if source is not Source.NONE}


def split_clusters(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """(clusters, everything else)."""
    clusters: list[Document] = []
    rest: list[Document] = []
    for document in documents:
        (clusters if document.get("kind") in CLUSTER_KINDS else rest).append(document)
    return clusters, rest


def warn_of_unread(fields: Iterable[str]) -> None:
    """Names on standard error, once, the fields that are accepted and that nothing reads."""
    warn(filter(None, [warning_of(fields)]))


def warn(sentences: Iterable[str]) -> None:
    """Print warnings on standard error."""
    for sentence in sentences:
        say(f"warning: {sentence}", err=True)


def warn_of_bindings(warnings: Mapping[str, Sequence[str]]) -> None:
    """Print warnings about bindings, by their names: each sentence once, for all that it is of."""
    named: dict[str, list[str]] = {}
    for name, sentences in warnings.items():
        for sentence in dict.fromkeys(sentences):
            named.setdefault(sentence, []).append(name)
    for sentence, names in named.items():
        rest = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        warn([f"{', '.join(names[:MAX_NAMED])}{rest}: {sentence}"])


def clusters_in_files(documents: Sequence[Document]) -> list[ClusterState]:
    """The clusters in files, of which there must be one at least; their reports are of now.

    Clusters that are being deleted are left out with a warning, as schedulers leave them out.
    """
    if not documents:
        raise InvalidRequest.of("files", "hold no Cluster")
    staying = without_deleted(by_name(documents))
    if not staying:
        raise InvalidRequest.of("files", "hold no Cluster that is not being deleted")
    names = {path for path, _ in staying}
    for path, _ in by_name(documents):
        if path not in names:
            warn([f"{path} is being deleted, and left out"])
    return clusters_of(staying, now=time.time())


def without_deleted(documents: Iterable[Placed]) -> list[Placed]:
    """The documents of objects that no API server is about to delete."""
    return [
        (path, document)
        for path, document in documents
        if not (isinstance(document, Mapping) and is_being_deleted(document))
    ]


def by_position(documents: Iterable[object], path: str) -> list[Placed]:
    """Documents of a case, each with its field path."""
    return [(f"{path}[{position}]", document) for position, document in enumerate(documents)]


def by_name(documents: Iterable[Document]) -> list[Placed]:
    """Documents of files, each under its kind and name."""
    return [
        (shown_name(document, f"document {position}"), document)
        for position, document in enumerate(documents, start=1)
    ]


def clusters_of(documents: Sequence[Placed], *, now: float) -> list[ClusterState]:
    """Clusters with their status, in the order given; a name given twice is refused."""
    violations = Violations()
    messages = []
    for path, document in documents:
        try:
            messages.append((path, message_from_document(document, resource_pb2.Cluster, path)))
        except InvalidRequest as error:
            violations.extend(error.violations)
    states = read_clusters(messages, now, violations)
    violations.check()
    return states


def binding_messages_of(
    documents: Sequence[Placed],
) -> list[tuple[str, resource_pb2.ResourceBinding]]:
    """ResourceBindings as messages, each with its path."""
    violations = Violations()
    messages = []
    for path, document in documents:
        try:
            message = message_from_document(document, resource_pb2.ResourceBinding, path)
            messages.append((path, message))
        except InvalidRequest as error:
            violations.extend(error.violations)
    violations.check()
    return messages


def bindings_of(
    messages: Iterable[tuple[str, resource_pb2.ResourceBinding]], ties: TieBreak | None
) -> list[Binding]:
    """Bindings, each once; ``ties`` holds where a placement names no order among equals."""
    violations = Violations()
    bindings = read_bindings(messages, ties, violations)
    violations.check()
    return bindings


def requirements_of(request: object, node_claim: object) -> ReplicaRequirements:
    """A request by resource name, with a node claim; both may be absent."""
    document: dict[str, Any] = {"resourceRequest": request, "nodeClaim": node_claim}
    try:
        message = message_from_document(document, resource_pb2.ReplicaRequirements)
        violations = Violations()
        requirements = read_requirements(message, "", violations)
        violations.check()
    except InvalidRequest as error:
        # Cases and the command line call it request.
        raise InvalidRequest(
            Violation(
                field=violation.field.replace("resourceRequest", "request", 1), rule=violation.rule
            )
            for violation in error.violations
        ) from error
    return requirements


def components_of(documents: object, path: str) -> tuple[Component, ...]:
    """The components of a workload: name, replicas and request each, and a node claim."""
    return tuple(_component(document, place) for place, document in _listed(documents, path))


def workloads_of(documents: object, path: str) -> tuple[tuple[Component, ...], ...]:
    """Workloads, each a list of components."""
    return tuple(components_of(document, place) for place, document in _listed(documents, path))


def _listed(documents: object, path: str) -> list[Placed]:
    """The items of a list, which may be left out."""
    if documents is None:
        return []
    if not isinstance(documents, Sequence) or isinstance(documents, str):
        raise InvalidRequest.of(path, "must be a list")
    return by_position(documents, path)


def _component(document: object, path: str) -> Component:
    if not isinstance(document, Mapping):
        raise InvalidRequest.of(path, "must be an object")
    replicas = document.get("replicas", 1)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise InvalidRequest.of(f"{path}.replicas", "must be a whole number")
    violations = Violations()
    ranges.replicas(replicas, f"{path}.replicas", violations)
    violations.check()
    try:
        requirements = requirements_of(document.get("request"), document.get("nodeClaim"))
    except InvalidRequest as error:
        raise InvalidRequest(violation.under(path) for violation in error.violations) from error
    return Component(
        name=str(document.get("name", "")), replicas=replicas, requirements=requirements
    )


def estimate_options(options: Mapping[str, Any], path: str = "options") -> EstimateOptions:
    """``modelRule``, ``merge`` and ``source``; absent ones have their defaults."""
    violations = Violations()
    defaults = EstimateOptions()
    texts = {
        name: _text(options, name, path, violations) for name in ("modelRule", "merge", "source")
    }
    if texts["source"] and texts["source"] not in SOURCES:
        rule = f"must be one of {', '.join(SOURCES)}, not {texts['source']!r}"
        violations.add(f"{path}.source", rule)
    read = EstimateOptions(
        model_rule=ranges.word(
            texts["modelRule"],
            ModelRule,
            f"{path}.modelRule",
            violations,
            default=defaults.model_rule,
        ),
        merge=ranges.word(
            texts["merge"], Merge, f"{path}.merge", violations, default=defaults.merge
        ),
        highest=SOURCES.get(texts["source"], defaults.highest),
    )
    violations.check()
    return read


def available_replicas(
    options: Mapping[str, Any], names: Iterable[str], path: str = "options.availableReplicas"
) -> dict[str, int]:
    """Replicas that are available by cluster name, as stated by the caller."""
    violations = Violations()
    stated = options.get("availableReplicas") or {}
    if not isinstance(stated, Mapping):
        raise InvalidRequest.of(path, "must be an object with a number for each cluster")
    for name, replicas in stated.items():
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            violations.add(f"{path}[{name}]", "must be a whole number")
    violations.check()
    check_available(stated, names, path, violations)
    violations.check()
    return dict(stated)


def tie_break(options: Mapping[str, Any], path: str = "options") -> TieBreak | None:
    """The order among equals for placements that do not name one."""
    violations = Violations()
    text = _text(options, "tieBreak", path, violations)
    read = ranges.optional_word(text, TieBreak, f"{path}.tieBreak", violations)
    violations.check()
    return read


def flag(options: Mapping[str, Any], name: str, path: str = "options") -> bool:
    value = options.get(name)
    if not isinstance(value, bool | None):
        raise InvalidRequest.of(f"{path}.{name}", "must be true or false")
    return bool(value)


def _text(options: Mapping[str, Any], name: str, path: str, violations: Violations) -> str:
    value = options.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    violations.add(f"{path}.{name}", "must be text")
    return ""


def checked_clusters(documents: Sequence[Document]) -> list[resource_pb2.Cluster]:
    """The clusters of documents, all of them checked: nothing is changed when one is wrong."""
    messages = []
    for (path, _), document in zip(by_name(documents), documents, strict=True):
        if document.get("kind") != "Cluster":
            raise InvalidRequest.of(
                f"{path}.kind", f"must be Cluster, not {document.get('kind')!r}"
            )
        message = message_from_document(document, resource_pb2.Cluster, path)
        cluster_from_message(message, path)
        messages.append(message)
    warn_of_unread(dropped_from_documents(documents))
    return messages


def quotas_of(documents: Sequence[Document]) -> list[access_pb2.Quota]:
    """Quotas, which are not objects of Kubernetes: kind and fields stand beside each other."""
    violations = Violations()
    quotas = []
    for position, document in enumerate(documents, start=1):
        path = f"Quota/{document.get('namespace') or f'document {position}'}"
        fields = {key: value for key, value in document.items() if key not in TYPE_META}
        try:
            quotas.append(message_from_document(fields, access_pb2.Quota, path))
            quota_from_message(quotas[-1], path, violations)
        except InvalidRequest as error:
            violations.extend(error.violations)
    violations.check()
    return quotas


def bindings_in(paths: Sequence[str]) -> FileBindings:
    """The bindings in files, all of them checked: nothing is decided when one is wrong."""
    return checked_bindings(documents_of(paths))


def checked_bindings(documents: Sequence[Document]) -> FileBindings:
    """The same of documents that are read."""
    held = file_bindings(documents)
    held.check_placed()
    warn(held.notes)
    if not held.bindings:
        raise InvalidRequest.of("files", "hold nothing to schedule")
    named = [(f"ResourceBinding/{binding.metadata.name}", binding) for binding in held.bindings]
    bindings_of(named, ties=None)
    warn_of_unread(dropped_from_documents(held.documents))
    return held


Case = Mapping[str, Any]

_CODES: Final = {"INVALID_REQUEST": "INVALID_ARGUMENT"}


def answer_cases(path: str, answer: Callable[[Case], dict[str, Any]]) -> None:
    """Prints ``answer`` of every line with the case's id; a line that is wrong gives its error.

    Lines are read one at a time, so a file may be of any size; a line may have 16 MiB.
    """
    for number, line in enumerate(_lines(path), start=1):
        if line is None or line.strip():
            say(json_text(_answered(line, f"line {number}", answer)))


def objects_at(case: Case, name: str) -> list[Any]:
    """A list that the case must have."""
    value = case.get(name)
    if not isinstance(value, list):
        raise InvalidRequest.of(name, "is required, a list")
    return value


def options_at(case: Case) -> Mapping[str, Any]:
    """The options of a case; empty when there are none."""
    options = case.get("options")
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidRequest.of("options", "must be an object")
    return options


def _answered(
    line: bytes | None, source: str, answer: Callable[[Case], dict[str, Any]]
) -> dict[str, Any]:
    case_id = None
    try:
        case = _case(line, source)
        case_id = case.get("id")
        return {"id": case_id, **answer(case)}
    except FederationError as error:
        field = error.violations[0].field if isinstance(error, InvalidRequest) else ""
        code = _CODES.get(error.reason, error.reason)
        return {"id": case_id, "error": {"code": code, "message": error.message, "field": field}}


def _case(line: bytes | None, source: str) -> Case:
    if line is None:
        raise InvalidRequest.of(source, f"has more than {MAX_DOCUMENT_BYTES} bytes (16 MiB)")
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest.of(source, f"is not UTF-8 text (byte {error.start})") from error
    case = read_json(text, source=source)
    if not isinstance(case, Mapping):
        raise InvalidRequest.of(source, "must be a JSON object")
    return case


def _lines(path: str) -> Iterator[bytes | None]:
    """Lines, each None when it is longer than is read."""
    with closing(_opened(path)) as file:
        while line := file.readline(MAX_DOCUMENT_BYTES + 1):
            if len(line) <= MAX_DOCUMENT_BYTES:
                yield line
                continue
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_DOCUMENT_BYTES)
            yield None


def _opened(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InvalidRequest.of(path, f"cannot be read: {error.strerror}") from error
