"""Amounts and durations as people read them.

Pure. Must not know where they are shown.
"""

from __future__ import annotations

from federation.model.resources import CPU, counts_bytes


def amount(name: str, base_units: int) -> str:
    """Return an amount as text, never below 0: cpu in cores, bytes in Ki to Pi."""
    positive = max(0, base_units)
    if name == CPU:
        return f"{positive / 1000:.12g}"
    if not counts_bytes(name):
        return str(positive)
    scaled: float = positive
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if scaled < 1024:
            return f"{scaled:.4g}{unit}"
        scaled /= 1024
    return f"{scaled:.4g}Pi"


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 cluster``, ``2 clusters``, ``12,000 clusters``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def plural(number: int, one: str) -> str:
    """Return ``1 cluster``, ``12000 clusters``: without separators, as in the reasons of
    decisions.
    """
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def age(seconds: float) -> str:
    """Return ``0.4s``, ``12s``, ``5m``, ``3h``, ``2d``."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    for unit, size in (("s", 60), ("m", 60), ("h", 24)):
        if seconds < 2 * size:
            return f"{seconds:.0f}{unit}"
        seconds /= size
    return f"{seconds:.0f}d"
