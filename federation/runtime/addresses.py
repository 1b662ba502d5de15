"""HOST:PORT, where a server listens or is reached.

Must not look up names.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens or is reached: host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface, and so names no place that others can dial."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def dialable_at(self, host_name: str) -> Address:
        """The place that others dial: on that machine, where it means every interface."""
        return Address(host=host_name, port=self.port) if self.is_wildcard else self


def parse_address(text: str, *, least_port: int = 0) -> Address:
    """Port 0 lets the system choose. Raises ValueError with the rule that is broken."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host and "/" not in host:
        raise ValueError("must be HOST:PORT; an IPv6 address is written in brackets, as [::1]:7443")
    if not (colon and host and port.isascii() and port.isdigit()) or "/" in host:
        raise ValueError("must be HOST:PORT")
    if not least_port <= int(port) <= 65535:
        raise ValueError(f"must be HOST:PORT with a port from {least_port} to 65535")
    return Address(host=host, port=int(port))


def is_secure_url(url: str) -> bool:
    """Whether nobody on the way to it can answer in its place: HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    is_here = parts.scheme == "http" and Address(host=host, port=0).is_loopback
    return bool(host) and (parts.scheme == "https" or is_here)


def parse_endpoint(text: str) -> Address:
    """As ``parse_address``, for a place that is dialled: it has a port."""
    return parse_address(text, least_port=1)
