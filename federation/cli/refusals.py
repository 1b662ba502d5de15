"""Why a control plane could not be asked, and what to do: what gRPC says, in words of options.

Must not ask anybody.
"""

from __future__ import annotations

from typing import Final, Protocol

from federation.model.errors import FederationError, Unavailable

# What gRPC says of a certificate that it does not take, of an answer that is no TLS, of a
# connection that is closed at once, of somebody who speaks HTTP and nothing of ours, of a port
# where nobody listens, and of a name that nobody knows.
UNTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
CLOSED: Final = ("Socket closed", "Connection reset", "recvmsg", "Stream removed", "GOAWAY")
NOT_OURS: Final = ("Received http2 header with status", "Trying to connect an http1.x server")
REFUSED: Final = "Connection refused"
UNKNOWN_NAME: Final = ("DNS resolution failed", "Domain name not found", "Name or service not")
UNREACHABLE: Final = ("Network is unreachable", "No route to host")
DATABASE: Final = "database"


class AskedServer(Protocol):
    """What was said about the control plane."""

    @property
    def endpoint(self) -> str: ...
    @property
    def ca(self) -> object | None: ...
    @property
    def insecure(self) -> bool: ...


def explained(error: FederationError, asked: AskedServer) -> str | None:
    """What failed, why, and what to do; None where the error itself says so."""
    message, endpoint = error.message, " or ".join(asked.endpoint.split(","))
    if any(words in message for words in NOT_OURS):
        return (
            f"what answers at {endpoint} is no control plane's API; check --endpoint: "
            "the API has a port of its own, 7443 unless told otherwise, beside the page's"
        )
    if not isinstance(error, Unavailable):
        return None
    if error.is_answer:
        return _answered(message, endpoint)
    _, untrusted, cause = message.partition(UNTRUSTED)
    if untrusted:
        cause = cause.removesuffix(": OK").lstrip(": ")
        remedy = "name its authority with --ca" if asked.ca is None else f"--ca is {asked.ca}"
        return f"the certificate of {endpoint} is not trusted ({cause}): {remedy}"
    if any(words in message for words in NO_TLS):
        return f"{endpoint} does not speak TLS: is it served with --insecure? Then say so here"
    if REFUSED in message:
        return (
            f"nothing listens at {endpoint} (connection refused): does it run there? "
            "`fedctl config get-contexts` shows what is kept, `fedctl doctor` what is wrong"
        )
    if any(words in message for words in UNKNOWN_NAME):
        return f"nobody knows the name in {endpoint}: check --endpoint, or this machine's DNS"
    if any(words in message for words in UNREACHABLE):
        return f"no network leads to {endpoint}: is a VPN or a route missing?"
    if any(words in message for words in CLOSED):
        return f"{endpoint} closed the connection ({message}); {_closed(asked)}"
    return f"{endpoint} cannot be reached: {message}"


def _answered(message: str, endpoint: str) -> str | None:
    if DATABASE in message:
        return (
            f"{message} The control plane at {endpoint} runs, its database does not answer: "
            "`federation doctor` on its machine says more"
        )
    return None


def _closed(asked: AskedServer) -> str:
    if asked.insecure:
        return "it may speak TLS: leave --insecure out, and name its authority with --ca"
    return "it may not speak TLS, want a --client-cert, or have gone away: try again"
