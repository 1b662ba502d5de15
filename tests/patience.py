"""How long tests wait for what must happen.

A bound on hanging, never an expectation of speed: machines are slow when much runs beside.
"""

from __future__ import annotations

PATIENCE_SECONDS = 180.0
