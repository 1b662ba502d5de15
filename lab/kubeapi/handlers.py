"""HTTP requests turned into reads and writes of the cluster, and answers.

Must not open sockets or make faults; ``lab.kubeapi.server`` does.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from lab.kubeapi.access import User, forbidden
from lab.kubeapi.faults import Asked
from lab.kubeapi.listing import list_page
from lab.kubeapi.resources import API_VERSIONS, BY_PATH, PODS, Document, Resource
from lab.kubeapi.state import Cluster
from lab.kubeapi.statuses import (
    NO_SNIFFING,
    Cause,
    Refused,
    bad_request,
    failure,
    invalid_options,
    method_not_allowed,
    no_such_path,
    not_found,
)
from lab.kubeapi.writing import Writer

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.27.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_REVIEWS: Final = "selfsubjectaccessreviews"
_TOKEN_REVIEWS: Final = "tokenreviews"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
# Server-side apply; JSON is YAML, too, and all that is sent here.
_APPLY: Final = "application/apply-patch+yaml"
_WRITABLE: Final = frozenset({"application/json", _MERGE, _STRATEGIC, _APPLY, ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names. ``resource`` is None for the few paths that are not objects."""

    resource: Resource | None
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer to be written: a document, or plain text."""

    status: int = 200
    document: Document | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def target_of(path: str) -> Target:
    """Read a path. Raises Refused for an unknown resource, HTTPNotFound for an unknown group."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        api_version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        api_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return Target(resource=None, name=path.rstrip("/"))
    if api_version == "authorization.k8s.io/v1" and rest == [_REVIEWS]:
        return Target(resource=None, name=_REVIEWS)
    if api_version == "authentication.k8s.io/v1" and rest == [_TOKEN_REVIEWS]:
        return Target(resource=None, name=_TOKEN_REVIEWS)
    if api_version not in API_VERSIONS:
        raise web.HTTPNotFound
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    if rest == ["bindings"] and namespace:
        return Target(resource=PODS, namespace=namespace, subresource="binding")
    resource = BY_PATH.get((api_version, rest[0]))
    if resource is None:
        raise no_such_path()
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource)


def asked_of(method: str, path: str, query: Mapping[str, str], target: Target) -> Asked:
    """The request as RBAC sees it."""
    verb = _VERBS.get(method, "get")
    if verb == "get" and target.resource is not None and not target.name:
        verb = "watch" if query.get("watch") in ("1", "true", "True") else "list"
    resource = target.resource
    return Asked(
        verb=verb,
        resource=resource.plural if resource else target.name,
        group=resource.group if resource else "",
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        path=path,
        query=query,
    )


class Handlers:
    """Answers everything but watches."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster = cluster
        self._writer = writer
        # Tokens of service accounts, with what a review says of each.
        self.reviews: dict[str, Document] = {}

    def answer(self, asked: Asked, target: Target, request: Received, user: User) -> Reply:
        """Raises Refused with the Status to answer."""
        if target.resource is None:
            return self._unkept(target, request, user)
        resource = target.resource
        match asked.verb:
            case "list":
                page = list_page(self._cluster, resource, target.namespace, asked.query)
                return Reply(document=_listed(resource, page.items, page.metadata, request.accept))
            case "get":
                found = self._cluster.get(resource, target.namespace, target.name)
                if found is None:
                    raise not_found(resource, target.name)
                return Reply(document=_partial(resource, found, request.accept))
            case _:
                return self._write(asked, target, resource, request)

    def _unkept(self, target: Target, request: Received, user: User) -> Reply:
        match target.name:
            case "/readyz" | "/healthz" | "/livez":
                return Reply(text="ok", headers=NO_SNIFFING)
            case "/version":
                return Reply(document=dict(VERSION))
            case _ if target.name == _REVIEWS:
                return Reply(status=201, document=_reviewed(request.document(), user))
            case _ if target.name == _TOKEN_REVIEWS:
                asked = Asked(verb="create", resource=_TOKEN_REVIEWS, group="authentication.k8s.io")
                if not user.may(asked):
                    raise forbidden(user.name, asked)
                return Reply(status=201, document=self._token_reviewed(request.document()))
            case _:
                raise web.HTTPNotFound

    def _token_reviewed(self, review: Document) -> Document:
        known = self.reviews.get(review["spec"]["token"])
        wanted = review["spec"].get("audiences", [])
        status: Document = {"user": {}, "error": "[invalid bearer token]"}
        if known is not None and not set(wanted).isdisjoint(known["audiences"]):
            audiences = [each for each in wanted if each in known["audiences"]]
            status = {"authenticated": True, "user": known["user"], "audiences": audiences}
        return {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {},
            "spec": review["spec"],
            "status": status,
        }

    def _write(self, asked: Asked, target: Target, resource: Resource, request: Received) -> Reply:
        namespace, name, writer = target.namespace, target.name, self._writer
        dry_run = _dry_run(asked.query)
        match asked.verb, target.subresource:
            case "create", "binding":
                body = request.document()
                pod = name or body.get("metadata", {}).get("name", "")
                status = writer.bind(namespace, pod, body, dry_run=dry_run)
                return Reply(status=201, document=status)
            case "create", "" if not name:
                made = writer.create(resource, namespace, request.document(), dry_run=dry_run)
                return Reply(status=201, document=made)
            case "update", "" | "status" as part:
                replaced = writer.replace(resource, namespace, name, request.document(), part)
                return Reply(document=replaced)
            case "patch", "" if request.content_type == _APPLY:
                manager = asked.query.get("fieldManager", "")
                applied = writer.apply(resource, namespace, name, request.document(), manager)
                return Reply(document=applied)
            case "patch", "" | "status" as part:
                is_strategic = request.content_type == _STRATEGIC
                patched = writer.patch(
                    resource,
                    namespace,
                    name,
                    request.document(),
                    part=part,
                    strategic=is_strategic,
                )
                return Reply(document=patched)
            case "delete", "" if name:
                options = request.document() if request.body else None
                return Reply(document=writer.delete(resource, namespace, name, options))
            case _:
                raise method_not_allowed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What of a request the handlers read."""

    accept: str
    content_type: str
    body: bytes

    def document(self) -> Document:
        """The body. Raises Refused (400, 415)."""
        if self.content_type not in _WRITABLE:
            message = (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            )
            raise Refused(failure(415, message, "UnsupportedMediaType"))
        try:
            document: Any = json.loads(self.body)
        except ValueError as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error
        if not isinstance(document, dict):
            raise bad_request("the object provided is unrecognized")
        return document


def check_accept(accept: str) -> None:
    """Raises Refused (406)."""
    kinds = [part.split(";")[0].strip() for part in accept.split(",")]
    if accept and not {"application/json", "application/*", "*/*"} & set(kinds):
        message = (
            "406: Not Acceptable\n\nAvailable representations: application/json, "
            "application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, "
            "application/vnd.kubernetes.protobuf;stream=watch"
        )
        raise Refused(failure(406, message, "NotAcceptable", details={}))


def _dry_run(query: Mapping[str, str]) -> bool:
    asked = query.get("dryRun")
    if asked not in (None, "All"):
        message = f'Unsupported value: ["{asked}"]: supported values: "All"'
        cause = Cause(reason="FieldValueNotSupported", message=message, field="dryRun")
        raise invalid_options("CreateOptions", cause)
    return asked is not None


def _listed(resource: Resource, items: list[Document], metadata: Document, accept: str) -> Document:
    if "as=PartialObjectMetadataList" in accept:
        partial = [_partial(resource, each, "as=PartialObjectMetadata;") for each in items]
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": partial,
        }
    bare = [
        {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
        for each in items
    ]
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": bare,
    }


def _partial(resource: Resource, document: Document, accept: str) -> Document:
    if "as=PartialObjectMetadata;" in accept:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": document["metadata"],
        }
    return {**document, "kind": resource.kind, "apiVersion": resource.api_version}


def _reviewed(review: Document, user: User) -> Document:
    wanted = review["spec"]["resourceAttributes"]
    asked = Asked(
        verb=wanted["verb"],
        resource=wanted["resource"],
        group=wanted.get("group", ""),
        subresource=wanted.get("subresource", ""),
        namespace=wanted.get("namespace", ""),
        name=wanted.get("name", ""),
    )
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {"uid": str(uuid.uuid4())},
        "spec": review["spec"],
        "status": {"allowed": user.may(asked)},
    }
