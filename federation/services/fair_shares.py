"""A bound for one actor where many share a limit: half of what the others leave free.

Must not count anything itself.
"""

from __future__ import annotations

from federation.model.errors import LimitExceeded


def check_share(own: int, total: int, limit: int, what: str) -> None:
    """One more of ``what`` for an actor that has ``own`` of the ``total``.

    Raises LimitExceeded. The first one is always within the share.
    """
    share = max(1, (limit - (total - own)) // 2)
    if own >= share:
        raise LimitExceeded(
            f"this caller has {own} {what} at once, which is half of those that others leave free "
            f"of {limit}: end one, or try again later"
        )
