"""The errors of a JSON decoder for bytes that came from elsewhere.

Must not be caught where the bytes are our own.
"""

from __future__ import annotations

from typing import Final

import msgspec

# The decoder finds wrong bytes inside a text, and nesting without end, in its own way each.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
