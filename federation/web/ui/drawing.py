"""Templates into pages, in a thread of their own.

Must not fetch anything: a template is given all that it shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mako.lookup import TemplateLookup  # type: ignore[import-untyped]  # has no types

from federation.services.threads import DRAWING
from federation.web.ui import captions, words

# What templates may call. Every ${...} goes through ``shown``; a test refuses filters, which would
# go around it.
_WORDS = tuple(
    f"from {each.__name__} import {', '.join(each.__all__)}" for each in (words, captions)
)
_TEMPLATES = TemplateLookup(
    directories=[str(Path(__file__).parent / "templates")],
    default_filters=["shown"],
    imports=list(_WORDS),
    input_encoding="utf-8",
    strict_undefined=True,
    filesystem_checks=False,
)


async def drawn(template: str, **values: Any) -> str:
    """A page. Raises LimitExceeded when too many wait to be drawn."""
    return await DRAWING.run(draw, template, **values)


def draw(template: str, **values: Any) -> str:
    page: str = _TEMPLATES.get_template(f"{template}.html").render_unicode(**values)
    return page
