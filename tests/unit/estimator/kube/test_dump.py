from __future__ import annotations

import json
from typing import Any

import pytest

from estimator.kube.dump import DumpError, read_dump
from lab.kubeapi.documents import node, pod


def dump_of(*items: Any, kind: str = "List") -> bytes:
    return json.dumps({"kind": kind, "apiVersion": "v1", "items": items}).encode()


def test_nodes_pods_and_the_cluster_are_found_among_other_kinds() -> None:
    def namespace(name: str) -> dict[str, Any]:
        return {"kind": "Namespace", "metadata": {"name": name, "uid": f"uid-{name}"}}

    dump = read_dump(
        dump_of(
            node("a"),
            {"kind": "Deployment", "spec": {"taints": 7}},
            pod("p", on="a"),
            namespace("default"),
            namespace("kube-system"),
        )
    )
    assert [each.name for each in dump.nodes] == ["a"]
    assert [each.name for each in dump.pods] == ["p"]
    assert dump.cluster_uid == "uid-kube-system"


def test_without_namespaces_the_cluster_is_not_named() -> None:
    assert read_dump(dump_of(node("a"))).cluster_uid == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not what 'kubectl get nodes,pods -A -o json' prints"),
        (b"\xff\xfe", "not what 'kubectl get nodes,pods -A -o json' prints"),
        (b'{"kind": "Node"}', "missing required field `items`"),
        (dump_of(kind="NodeList"), "kind is 'NodeList', not 'List'"),
        (dump_of(node("a"), {"kind": "Node"}), r"items\[1\]: .*`metadata`"),
        (
            dump_of(node("a"), node("b?")).replace(b"?", b"\xff"),
            r"items\[1\]: .*invalid start byte",
        ),
        (dump_of(node("a"), {"kind": "Node", "metadata": [[]]}), r"items\[1\]: "),
        (
            dump_of({"kind": "Node", "spec": "?"}).replace(b'"?"', b"[" * 9_000 + b"]" * 9_000),
            "maximum recursion depth",
        ),
        (dump_of(pod("p", cpu="1Q")), r"items\[0\]: pod shop/p: '1Q' is not a quantity"),
    ],
)
def test_what_is_no_dump_is_refused_by_its_place(content: bytes, said: str) -> None:
    with pytest.raises(DumpError, match=said):
        read_dump(content)
