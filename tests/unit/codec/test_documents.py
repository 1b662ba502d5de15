"""Reading text: YAML, JSON and lists, and everything that must be refused with its place."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from federation.codec.documents import MAX_DOCUMENT_BYTES, check_size, read_documents, read_json
from federation.model.errors import InvalidRequest


def refusal(text: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_documents(text, source="fleet.yaml")
    return str(caught.value)


def test_several_documents_and_empty_ones() -> None:
    text = "---\nkind: A\n---\n---\nkind: B\n...\n"
    assert read_documents(text, source="f") == [{"kind": "A"}, {"kind": "B"}]


def test_lists_are_flattened_and_typed_lists_name_their_items() -> None:
    text = json.dumps(
        {
            "kind": "List",
            "items": [
                {"kind": "A"},
                {"kind": "ClusterList", "apiVersion": "v1", "items": [{"metadata": {"name": "m"}}]},
            ],
        }
    )
    assert read_documents(text, source="f") == [
        {"kind": "A"},
        {"kind": "Cluster", "apiVersion": "v1", "metadata": {"name": "m"}},
    ]


def test_scalars_follow_the_core_schema() -> None:
    text = "{a: no, b: 2026-03-01, c: 010, d: 0x10, e: 1_000, f: 1:30, g: 1e3, h: -7, i: .5, j: ~}"
    assert read_documents(text, source="f") == [{
        "a": "no", "b": "2026-03-01", "c": "010", "d": "0x10", "e": "1_000",
        "f": "1:30", "g": 1000.0, "h": -7, "i": 0.5, "j": None,
    }]  # fmt: skip


def test_quoted_and_tagged_scalars_stay_text() -> None:
    assert read_documents("{a: '1', b: !!str 1, c: \"true\", 3: x}", source="f") == [
        {"a": "1", "b": "1", "c": "true", "3": "x"}
    ]


def test_anchors_and_merges() -> None:
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, a: 5}\nz: *x\n"
    assert read_documents(text, source="f") == [
        {"x": {"a": 1, "b": 2}, "y": {"a": 5, "b": 2}, "z": {"a": 1, "b": 2}}
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c", "fleet.yaml, line 1: is not YAML"),
        ("a: 1\nb: [", "fleet.yaml, line 3: is not YAML"),
        ("a: 1\nb: 2\na: 3", "fleet.yaml, line 3: is not YAML that can be read: key 'a'"),
        ('{"a": 1, "a": 2}', "key 'a' is there twice"),
        ('{"a": "\\ud800"}', "fleet.yaml: holds half of a surrogate pair"),
        ("a: \ud800", "fleet.yaml: is not text"),
        ("just text", "fleet.yaml: document 1: must be an object"),
        ("- 1", "fleet.yaml: document 1, item 0: must be an object"),
        ("a: &a [*a]", "alias *a stands for nothing"),
        ("a: *b", "alias *b stands for nothing"),
        ("!!python/object/apply:os.system [ls]", "is not read here"),
        ("? [a]\n: b", "a key must be text"),
        ("a: \x00", "control characters are not allowed"),
        ("[" * 20_000, "nested too deeply"),
        ("a:\n" + "".join(" " * n + "-\n" for n in range(1, 200)), "deeper than 100 levels"),
        ("{" + "9" * 5000 + ": " + '"x"}x', "fleet.yaml"),
    ],
)
def test_what_is_refused_names_the_place(text: str, said: str) -> None:
    assert said in refusal(text)


def test_aliases_cannot_expand_without_bound() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases expanded" in refusal("\n".join(lines))


def test_size_is_capped() -> None:
    check_size(MAX_DOCUMENT_BYTES, source="f")
    with pytest.raises(InvalidRequest, match="16 MiB"):
        check_size(MAX_DOCUMENT_BYTES + 1, source="f")
    with pytest.raises(InvalidRequest, match="16 MiB"):
        read_documents("#" * (MAX_DOCUMENT_BYTES + 1), source="f")


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "9" * 5000, '{"a": 1, "a": 2}', "{", ""])
def test_json_is_read_strictly(text: str) -> None:
    with pytest.raises(InvalidRequest, match="f: is not JSON"):
        read_json(text, source="f")


# Without digits: the dumper follows YAML 1.1, to which 1e3 is text.
TEXT = st.text(st.sampled_from("ab ~<#:-{}[]&*!|>'\"%@`\n\t"))
KEYS = st.text("abc", min_size=1)
PLAIN: st.SearchStrategy[object] = st.deferred(
    lambda: (
        st.none()
        | st.booleans()
        | st.integers()
        | TEXT
        | st.lists(PLAIN, max_size=4)
        | st.dictionaries(KEYS, PLAIN, max_size=4)
    )
)


@given(st.dictionaries(KEYS, PLAIN, max_size=4))
def test_what_is_dumped_comes_back(value: dict[str, object]) -> None:
    for text in (yaml.safe_dump(value), json.dumps(value)):
        assert read_documents(text, source="f") == [value]
