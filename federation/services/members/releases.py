"""Agents of other releases: one release apart is told of, two are refused, by the cluster's name.

Must not know what differs between releases.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import version

from federation.model.errors import PreconditionFailed
from federation.model.releases import TOO_FAR, releases_apart

logger = logging.getLogger(__name__)


def check_release(cluster: str, theirs: str) -> None:
    """Raises PreconditionFailed."""
    ours = _own_version()
    apart = releases_apart(ours, theirs)
    if apart >= TOO_FAR:
        raise PreconditionFailed(
            f"The agent of cluster {cluster!r} runs {theirs[:64]!r} and this control plane {ours}: "
            "they may be one release apart, so bring the older one forward first.",
            reason="RELEASES_APART",
        )
    if apart:
        fields = {"cluster": cluster, "agent": theirs, "control_plane": ours}
        logger.warning("agent of another release", extra={"fields": fields})


@cache
def _own_version() -> str:
    return version("fedsched")
