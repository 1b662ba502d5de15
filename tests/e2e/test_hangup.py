"""``federation serve`` as a process that is sent SIGHUP: it reads its TLS files, and lives on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from federation.certificates import make_certificates
from federation.runtime.addresses import parse_endpoint
from lab.patience import until
from lab.servers import started
from tests.unit.authenticators.test_renewed_files import HOSTS, der, shown_at


def test_a_hangup_reads_tls_files_again_and_ends_nobody(database_url: str, tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "tls", HOSTS)
    tls = ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca))
    ports = ("--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")
    data = ("--data-dir", str(tmp_path / "state"), "--database-url", database_url)
    with started(*tls, *ports, *data) as server:
        address = parse_endpoint(server.await_line(r"API +(\S+)").group(1))
        assert asyncio.run(shown_at(address)) == der(files.cert)
        make_certificates(files.cert.parent, HOSTS)
        server.process.send_signal(signal.SIGHUP)
        asyncio.run(until(lambda: shown_at(address), der(files.cert).__eq__))
        server.await_line("files were read again")
        assert server.stop() == 0
        assert "Traceback" not in server.output
