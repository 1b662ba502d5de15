"""What holds for every quantity."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from federation.model.quantity import Notation, Quantity, QuantityError, parse_quantity
from federation.model.resources import MAX_AMOUNT, amount_of, format_amount

POWERS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20),
    "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
    "e-7": Fraction(1, 10**7), "E4": Fraction(10**4), "e+5": Fraction(10**5),
}  # fmt: skip

nanos = st.integers(-(10**30), 10**30)
notations = st.sampled_from(Notation)
NAMES = st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi"])


@given(nanos=nanos, notation=notations)
def test_the_canonical_text_says_the_same(nanos: int, notation: Notation) -> None:
    text = Quantity(nanos=nanos, notation=notation).canonical()
    again = parse_quantity(text)
    largest = MAX_AMOUNT * 10**9
    if not text.endswith("i") or abs(nanos) <= largest:
        assert again.nanos == nanos
    # A number that no binary suffix divides is written plainly, and read back as a decimal one.
    plain = notation is Notation.BINARY and not text.endswith("i")
    assert again.canonical() == text or abs(nanos) > largest or plain


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.integers(0, 10**12),
    fraction=st.text(alphabet="0123456789", max_size=12),
    suffix=st.sampled_from(sorted(POWERS)),
)
def test_reading_is_exact_and_rounds_away_from_zero(
    sign: str, whole: int, fraction: str, suffix: str
) -> None:
    exact = (Fraction(whole) + Fraction(int(fraction or "0"), 10 ** len(fraction))) * POWERS[suffix]
    if suffix.endswith("i"):
        exact = min(exact, Fraction(MAX_AMOUNT))
    quantity = parse_quantity(f"{sign}{whole}.{fraction}{suffix}")
    in_nanos = exact * 10**9
    assert in_nanos <= abs(quantity.nanos) < in_nanos + 1
    assert abs(quantity.nanos) <= abs(quantity.milli()) * 10**6 < abs(quantity.nanos) + 10**6
    assert abs(quantity.nanos) <= abs(quantity.whole()) * 10**9 < abs(quantity.nanos) + 10**9
    assert quantity.nanos <= 0 or sign != "-"


@given(name=NAMES, amount=st.integers(0, MAX_AMOUNT))
def test_a_shown_amount_reads_back(name: str, amount: int) -> None:
    assert amount_of(name, format_amount(name, amount)) == amount


@given(text=st.text(alphabet="0123456789+-.eEinumkKMGTP \n", max_size=12) | st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except QuantityError:
        return
    assert parse_quantity(quantity.canonical()).nanos == quantity.nanos
