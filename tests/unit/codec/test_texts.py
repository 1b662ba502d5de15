from __future__ import annotations

from collections.abc import Callable

import pytest

from federation.codec import texts
from federation.codec.violations import Violations

HOSTILE = "a\x1b[2J\u202e\n"


def found_by(rule: Callable[[Violations], object]) -> list[str]:
    found = Violations()
    rule(found)
    try:
        found.check()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return [each.field for each in getattr(error, "violations", ())]
    return []


@pytest.mark.parametrize("key", ["a", "topology.kubernetes.io/zone", "A.b-c_9", "x" * 63])
@pytest.mark.parametrize("value", ["", "eu-central-1a", "A.b_c", "x" * 63])
def test_labels_as_kubernetes_takes_them(key: str, value: str) -> None:
    assert found_by(lambda found: texts.label_map({key: value}, "labels", found)) == []


@pytest.mark.parametrize("key", ["", "-a", "a b", "x" * 64, "a/b/c", "A.io/b", HOSTILE])
def test_a_key_that_is_none(key: str) -> None:
    assert len(found_by(lambda found: texts.label_map({key: "v"}, "labels", found))) == 1
    assert len(found_by(lambda found: texts.annotation_map({key: "v"}, "a", found))) == (
        key != "A.io/b"  # Kubernetes takes capitals there.
    )


@pytest.mark.parametrize("value", ["-a", "a b", "x" * 64, "x" * 100_000, "é", HOSTILE])
def test_a_value_that_is_none(value: str) -> None:
    found = Violations()
    texts.label_map({"k": value}, "labels", found)
    with pytest.raises(Exception, match=r"labels\[k\]: must be empty or at most 63") as caught:
        found.check()
    assert len(str(caught.value)) < 400


def test_annotations_hold_any_text_up_to_a_size() -> None:
    assert found_by(lambda found: texts.annotation_map({"k": HOSTILE}, "a", found)) == []
    big = {"k": "x" * texts.MAX_ANNOTATION_BYTES}
    assert found_by(lambda found: texts.annotation_map(big, "a", found)) == ["a"]


def test_not_every_one_of_many_is_told() -> None:
    many = {f"bad key {number}": "v" for number in range(10_000)}
    assert len(found_by(lambda found: texts.label_map(many, "a", found))) == texts.MAX_FOUND


@pytest.mark.parametrize("uid", ["8f6f4a2e-0c0b-4d52-9f0e-2f3f5c1d7a90", "nodes-1", "u"])
def test_a_uid(uid: str) -> None:
    assert found_by(lambda found: texts.uid(uid, "uid", found)) == []


@pytest.mark.parametrize("uid", ["", "not a uid", "-a", "a-", "A", "x" * 64, "a.b", HOSTILE])
def test_what_is_no_uid(uid: str) -> None:
    assert found_by(lambda found: texts.uid(uid, "uid", found)) == ["uid"]


def test_words_are_printable_and_short() -> None:
    assert found_by(lambda found: texts.words(["", "Zürich", "v1.33.1+k3s1"], "w", found)) == []
    assert found_by(lambda found: texts.words(["ok", HOSTILE, "x" * 254], "w", found)) == [
        "w[1]",
        "w[2]",
    ]
