"""A real kube-apiserver on an etcd of its own, for as long as it is asked.

Must not be given anything that is to be kept. Needs the folder with the two programs.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from federation.certificates import make_certificates

TOKEN: Final = "contract-admin"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.2


class RealServer:
    """Starts both programs in ``directory``; their output is in files beside their data."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        self._reserved = [_reserved() for _ in range(3)]
        self._port, *self._etcd_ports = (each.getsockname()[1] for each in self._reserved)
        self.url = f"https://127.0.0.1:{self._port}"
        self._tls = make_certificates(directory / "tls", ["127.0.0.1"])
        self.ca = self._tls.ca

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        self._run(
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync=true",
        )
        key = self._directory / "service-account.key"
        key.write_bytes(_private_key())
        tokens = self._directory / "tokens.csv"
        tokens.write_text(f"{TOKEN},contract,contract,system:masters\n", encoding="utf-8")
        arguments = (
            f"--etcd-servers={client}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._tls.cert}",
            f"--tls-private-key-file={self._tls.key}",
            f"--cert-dir={self._directory / 'certificates'}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # No controller makes the default accounts that pods would need.
            "--disable-admission-plugins=ServiceAccount",
        )
        self._run("kube-apiserver", *arguments)
        self._wait_until_ready()
        # Started anew, its watch cache knows nothing of the first versions, as after an upgrade.
        _end(self._running.pop())
        self._run("kube-apiserver", *arguments)
        self._wait_until_ready()

    def _run(self, program: str, *arguments: str) -> None:
        log = self._directory / f"{program}.log"
        with log.open("wb") as output:
            command = [str(self._programs / program), *arguments]
            self._running.append(subprocess.Popen(command, stdout=output, stderr=output))

    def _wait_until_ready(self) -> None:
        trusting = ssl.create_default_context(cafile=str(self.ca))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self._running:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended; see {self._directory}")
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", context=trusting):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(POLL_SECONDS)
        raise TimeoutError(f"kube-apiserver is not ready; see {self._directory}")

    def _stop(self) -> None:
        while self._running:
            _end(self._running.pop())
        for each in self._reserved:
            each.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _private_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _reserved() -> socket.socket:
    """A port that nobody else is given; a program that is told of it may listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved
