"""What addresses ask for, checked before anything is looked up.

Must not know what is found.
"""

from __future__ import annotations

from math import isfinite

from starlette.requests import Request

from federation.model.errors import InvalidRequest
from federation.services.binding_ports import BindingStanding, QueuePlace

MAX_CHARACTERS = 512
LEAST_PRIORITY, MOST_PRIORITY = -(2**31), 2**31 - 1
# Far beyond any time that a database keeps.
MOST_SECONDS = 1e11


def text_of(request: Request, field: str) -> str:
    """Empty where it is not given. Raises InvalidRequest."""
    text = request.query_params.get(field, "").strip()
    if "\0" in text or len(text) > MAX_CHARACTERS:
        raise InvalidRequest.of(field, f"must be at most {MAX_CHARACTERS} characters without NUL")
    return text


def required_text(request: Request, field: str) -> str:
    text = text_of(request, field)
    if not text:
        raise InvalidRequest.of(field, "is required")
    return text


def standing_of(request: Request) -> BindingStanding | None:
    """None where it is not given. Raises InvalidRequest."""
    text = text_of(request, "standing")
    if text and text not in {*BindingStanding}:
        raise InvalidRequest.of("standing", f"must be one of {', '.join(BindingStanding)}")
    return BindingStanding(text) if text else None


def number_of(request: Request, field: str, *, least: int, most: int) -> int | None:
    """None where it is not given. Raises InvalidRequest."""
    text = text_of(request, field)
    if not text:
        return None
    number = int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else most + 1
    if not least <= number <= most:
        raise InvalidRequest.of(field, f"must be a whole number from {least} to {most}")
    return number


def queue_place_of(request: Request) -> QueuePlace | None:
    """Where a page of the queue begins, None: at its front. Raises InvalidRequest."""
    priority = number_of(request, "priority", least=LEAST_PRIORITY, most=MOST_PRIORITY)
    since = text_of(request, "since")
    if priority is None or not since:
        return None
    try:
        seconds = float(since)
    except ValueError:
        seconds = float("nan")
    if not isfinite(seconds) or not 0 <= seconds < MOST_SECONDS:
        raise InvalidRequest.of("since", "must be a time in Unix seconds")
    names = (text_of(request, f"after_{part}") for part in ("namespace", "name", "entry"))
    return QueuePlace(priority, seconds, *names)


def pairs_in(text: str, field: str) -> dict[str, str]:
    """``name=value`` pairs, divided by commas or blanks. Raises InvalidRequest."""
    pairs = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InvalidRequest.of(field, f"{word!r} must be name=value")
        pairs[name] = value
    return pairs
