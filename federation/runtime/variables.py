"""Variables of the environment that look like settings of ours and are none.

Must not read the environment: it is passed in.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

# What Kubernetes sets in every pod beside a service, https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables.
_OF_A_SERVICE: Final = re.compile(
    r".*_SERVICE_(HOST|PORT(_.+)?)|.*_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_PORT_OF_A_SERVICE: Final = re.compile(r"(tcp|udp|sctp)://.+")


def unknown_variables(
    environment: Mapping[str, str], prefix: str, known: Iterable[str]
) -> list[str]:
    """A sentence for each variable with our prefix that means nothing to us, with a near name."""
    names = sorted(known)
    told = []
    for name in sorted(environment.keys() - set(names)):
        if not name.startswith(prefix) or _is_of_a_service(name, environment[name]):
            continue
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}?" if near else ""
        told.append(f"{name} is no setting and does nothing{hint}")
    return told


def _is_of_a_service(name: str, value: str) -> bool:
    if _OF_A_SERVICE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _PORT_OF_A_SERVICE.fullmatch(value) is not None
