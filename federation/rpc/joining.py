"""The one command that joins a cluster, with everything an agent must know to trust us.

Must not make tokens: it only writes them down.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """How agents reach the control plane.

    ``ca_url`` and ``ca_sha256`` are empty where plain text is served.
    """

    endpoint: str
    ca_url: str = ""
    ca_sha256: str = ""


def join_command(advertised: Advertised, cluster: str, token: str) -> str:
    """For a shell, in the member cluster."""
    if advertised.ca_url:
        trust = ["--ca-url", advertised.ca_url, "--ca-sha256", advertised.ca_sha256]
    else:
        trust = ["--insecure"]
    return shlex.join(
        [
            *("estimator", "run"),
            *("--cluster", cluster),
            *("--endpoint", advertised.endpoint),
            *trust,
            *("--join-token", token),
            *("--credential-file", f"{cluster}.credential"),
        ]
    )
