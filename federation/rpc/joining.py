"""The one command that joins a cluster, with everything an agent must know to trust us.

Must not make tokens: it only writes them down.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from federation.certificates import ca_fingerprint
from federation.runtime.addresses import Address
from federation.runtime.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """How agents reach the control plane.

    ``ca_url`` and ``ca_sha256`` are empty where plain text is served.
    """

    endpoint: str
    ca_url: str = ""
    ca_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Where a control plane listens, and the name of its machine."""

    endpoint: Address
    web: Address
    host_name: str


def advertised(settings: Settings, reached: Reached, ca_pem: bytes | None) -> Advertised:
    """What settings say, else what is listened on."""
    endpoint = settings.advertise_endpoint or reached.endpoint.dialable_at(reached.host_name)
    if ca_pem is None:
        return Advertised(endpoint=str(endpoint))
    return Advertised(
        endpoint=str(endpoint),
        ca_url=settings.advertise_ca_url
        or f"http://{reached.web.dialable_at(reached.host_name)}/ca.pem",
        ca_sha256=ca_fingerprint(ca_pem),
    )


def join_command(advertised: Advertised, cluster: str, token: str) -> str:
    """For a shell, in the member cluster.

    The token is a variable: what stands on a command line is read by who may list processes.
    """
    if advertised.ca_url:
        trust = ["--ca-url", advertised.ca_url, "--ca-sha256", advertised.ca_sha256]
    else:
        trust = ["--insecure"]
    words = [
        *("estimator", "run"),
        *("--cluster", cluster),
        *("--endpoint", advertised.endpoint),
        *trust,
        *("--credential-file", f"{cluster}.credential"),
    ]
    return f"ESTIMATOR_JOIN_TOKEN={shlex.quote(token)} {shlex.join(words)}"
