from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import escape

from federation.model.quotations import (
    CLOSING,
    HIDDEN_SENTENCE,
    OPENING,
    page_without_quotations,
    quoted,
    without_quotations,
)

SENTENCES = st.text(st.sampled_from(f'ab <>"&{OPENING}{CLOSING}'), min_size=1)


@given(SENTENCES, SENTENCES)
@example(f'a{CLOSING}b"<', f"{OPENING}b")
def test_nothing_of_a_quoted_sentence_is_left(one: str, other: str) -> None:
    text = f"1 cluster: {quoted(one)}; 2 clusters: {quoted(other)}, and no more"
    hidden = f"{OPENING}{HIDDEN_SENTENCE}{CLOSING}"
    expected = f"1 cluster: {hidden}; 2 clusters: {hidden}, and no more"
    assert without_quotations(text) == expected
    page = f'<p title="{escape(text)}">{escape(text)}</p>'
    shown = f'<p title="{expected}">{expected}</p>'
    assert page_without_quotations(page) == shown


@given(SENTENCES, st.integers(0, 40))
def test_nothing_is_left_of_a_text_that_was_cut(sentence: str, length: int) -> None:
    cut = f"why: {quoted(sentence)}"[:length]
    expected = cut.partition(OPENING)[0]
    assert without_quotations(cut).partition(OPENING)[0] == expected
    assert without_quotations(cut) in (cut, f"{expected}{OPENING}{HIDDEN_SENTENCE}{CLOSING}")
    page = page_without_quotations(f'<td title="{escape(cut)}">{escape(cut)}</td><td>x</td>')
    assert page.endswith("</td><td>x</td>")
    assert page.startswith(f'<td title="{expected}')


def test_an_empty_sentence_stays_empty() -> None:
    assert quoted("") == ""
    assert without_quotations("plain words") == "plain words"
