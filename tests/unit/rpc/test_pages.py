"""Tokens of pages and how much a page holds; what callers are refused for: tests/api."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.model.errors import InvalidRequest
from federation.rpc.pages import MAX_PAGE_BYTES, fitting, key_of, page_size_of, page_token
from federation.v1.resource_pb2 import ObjectMeta

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VERSIONS = st.builds("{}.{}".format, *[st.integers(0, 10**18)] * 2)


@given(st.tuples(VERSIONS, TEXTS))
def test_a_token_leads_back_to_its_key(key: tuple[str, str]) -> None:
    assert key_of(page_token(key), 2) == key
    assert key_of("", 2) is None


@given(st.text())
def test_any_text_is_a_key_or_a_refusal(token: str) -> None:
    try:
        key = key_of(token, 1)
    except InvalidRequest as error:
        fields = [each.field for each in error.violations]
    else:
        fields = ["pageToken"]
        assert key is None or len(key) == 1
    assert fields == ["pageToken"]


def test_page_sizes() -> None:
    assert [page_size_of(requested) for requested in (0, 1, 1000)] == [500, 1, 1000]
    for requested in (-1, 1001, 2**31 - 1):
        with pytest.raises(InvalidRequest):
            page_size_of(requested)


def test_a_page_is_cut_where_the_answer_would_get_too_large_and_is_never_empty() -> None:
    messages = [ObjectMeta(name="x" * (MAX_PAGE_BYTES // 4)) for _ in range(6)]
    assert len(fitting(messages)) == 3
    assert len(fitting([ObjectMeta(name="x" * (MAX_PAGE_BYTES + 1))] * 2)) == 1
    assert fitting([]) == []
