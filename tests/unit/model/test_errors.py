"""An error without a message says in one sentence what is wrong."""

from __future__ import annotations

from federation.model.errors import DeadlineMissed, Unavailable


def test_an_error_without_a_message_has_the_first_paragraph_of_its_class() -> None:
    assert Unavailable().message == (
        "Something this depends on (the database, an agent) cannot be reached now; retry later."
    )
    assert DeadlineMissed().message == (
        "The deadline of the caller passed before the answer was ready."
    )
    assert Unavailable("PostgreSQL is away").message == "PostgreSQL is away"
