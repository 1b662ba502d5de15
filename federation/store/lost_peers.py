"""How both sides of a database connection learn within seconds that the other one is gone.

Must not know the pool, nor what the connection is for.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

import asyncpg

# For the server. Over a unix socket the kernel tells at once, and those of TCP mean nothing.
SERVER_SETTINGS: Final = {
    # Who was cut off, or stands still, within a transaction holds its locks no longer than this.
    "idle_in_transaction_session_timeout": "3s",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "4s",
}
# For our side; not every system has all of them.
_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": 2,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 4000,
}
# A statement ends with who asked for it: from PostgreSQL 14 on, where the system can tell.
_CHECK_CLIENT: Final = (
    "SET /* fedsched:connection.check_client */ client_connection_check_interval = '1s'"
)


async def notice_lost_server(connection: asyncpg.Connection) -> None:
    """To be called once for a new connection."""
    transport = connection._transport  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
    own: socket.socket = transport.get_extra_info("socket")
    if own.family != socket.AF_UNIX:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_OPTIONS.items():
            if (option := getattr(socket, name, None)) is not None:
                own.setsockopt(socket.IPPROTO_TCP, option, value)
    with suppress(asyncpg.PostgresError):
        await connection.execute(_CHECK_CLIENT)
