"""Runs the fake API server in kube-apiserver's place: the same options, with a certificate.

Must not know what it is started for.
"""

from __future__ import annotations

import argparse
import csv
import signal
import ssl
from pathlib import Path

from lab.kubeapi.access import User
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--secure-port", type=int, required=True)
    parser.add_argument("--token-auth-file", type=Path, required=True)
    parser.add_argument("--tls-cert-file", type=Path, required=True)
    parser.add_argument("--tls-private-key-file", type=Path, required=True)
    options, _ = parser.parse_known_args()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(options.tls_cert_file, options.tls_private_key_file)
    server = KubeApiServer(Cluster(), tls=tls)
    server.port = options.secure_port
    with options.token_auth_file.open(encoding="utf-8", newline="") as lines:
        server.tokens = {token: User(name=name) for token, name, *_ in csv.reader(lines)}
    with server:
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
