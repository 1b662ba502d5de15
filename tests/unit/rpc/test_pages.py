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


def test_no_token_is_the_beginning() -> None:
    assert key_of("", 2) is None


@pytest.mark.parametrize(
    "token",
    [
        *("x", "é", "W10=", page_token(["1.2"]), page_token(["1.2", "b", "c"])),
        *(page_token(["1.2", "\0"]), page_token(["a", "b"]), page_token(["", "b"])),
    ],
)
def test_what_no_list_answered_is_refused(token: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        key_of(token, 2)
    assert [each.field for each in caught.value.violations] == ["pageToken"]


@given(st.text())
def test_any_text_is_a_key_or_a_refusal(token: str) -> None:
    try:
        key = key_of(token, 1)
    except InvalidRequest:
        return
    assert key is None or len(key) == 1


@pytest.mark.parametrize(("requested", "size"), [(0, 500), (1, 1), (1000, 1000)])
def test_page_sizes(requested: int, size: int) -> None:
    assert page_size_of(requested) == size


@pytest.mark.parametrize("requested", [-1, 1001, 2**31 - 1])
def test_page_sizes_out_of_range_are_refused(requested: int) -> None:
    with pytest.raises(InvalidRequest):
        page_size_of(requested)


def test_a_page_is_cut_where_the_answer_would_get_too_large() -> None:
    messages = [ObjectMeta(name="x" * (MAX_PAGE_BYTES // 4)) for _ in range(6)]
    assert len(fitting(messages)) == 3


def test_a_page_never_is_empty_while_there_is_something() -> None:
    assert len(fitting([ObjectMeta(name="x" * (MAX_PAGE_BYTES + 1))] * 2)) == 1
    assert fitting([]) == []
