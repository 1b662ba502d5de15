"""A cluster from a file: what ``kubectl get nodes,pods -A -o json`` prints.

Must not reach a cluster. Beside nodes and pods it takes quotas and
the kube-system namespace, and skips all else.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from estimator.estimation.quota import Quota
from estimator.kube.objects import Kinded, RawNode, RawObject, RawPod
from estimator.kube.quotas import RawQuota, quota_from_raw
from estimator.kube.translate import Untranslatable, node_from_raw, pod_from_raw
from estimator.nodes import Node, Pod
from estimator.unreadable import UNREADABLE


class DumpError(ValueError):
    """The file is not such a dump; the text says what is wrong where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A cluster at the instant it was dumped; ``cluster_uid`` is empty without namespaces."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    quotas: tuple[Quota, ...] = ()
    cluster_uid: str = ""


class _KindedList(RawObject, frozen=True):
    kind: str
    items: list[msgspec.Raw]


_decode_list = msgspec.json.Decoder(_KindedList).decode
_decode_kind = msgspec.json.Decoder(Kinded).decode
_decode_node = msgspec.json.Decoder(RawNode).decode
_decode_quota = msgspec.json.Decoder(RawQuota).decode
_decode_pod = msgspec.json.Decoder(RawPod).decode


def read_dump(content: bytes) -> Dump:
    """Read a v1 List. Raises DumpError naming the item that is wrong."""
    try:
        listed = _decode_list(content)
    except UNREADABLE as error:
        raise DumpError(f"not what 'kubectl get nodes,pods -A -o json' prints: {error}") from error
    if listed.kind != "List":
        raise DumpError(
            f"kind is {listed.kind!r}, not 'List': use 'kubectl get nodes,pods -A -o json'"
        )
    nodes: list[Node] = []
    pods: list[Pod] = []
    quotas: list[Quota] = []
    cluster_uid = ""
    for position, item in enumerate(listed.items):
        try:
            header = _decode_kind(item)
            match header.kind:
                case "Node":
                    nodes.append(node_from_raw(_decode_node(item)))
                case "Pod":
                    pods.append(pod_from_raw(_decode_pod(item)))
                case "ResourceQuota":
                    quotas.append(quota_from_raw(_decode_quota(item)))
                case "Namespace" if header.metadata.name == "kube-system":
                    cluster_uid = header.metadata.uid or ""
        except (*UNREADABLE, Untranslatable) as error:
            raise DumpError(f"items[{position}]: {error}") from error
    return Dump(nodes=tuple(nodes), pods=tuple(pods), quotas=tuple(quotas), cluster_uid=cluster_uid)
