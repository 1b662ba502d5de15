"""``estimator run --karmada-port`` as a process, called as karmada-scheduler calls it."""

from __future__ import annotations

import asyncio
import signal
import socket
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from estimator.karmada.estimator_pb2 import (
    MaxAvailableReplicasRequest,
    Quantity,
    ReplicaRequirements,
)
from estimator.karmada.estimator_pb2_grpc import EstimatorStub
from federation.certificates import CertificateFiles, make_certificates
from lab.agents import DUMPS, SECONDS, estimator
from lab.patience import PATIENCE_SECONDS, until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def requirements(namespace: str = "", **amounts: str) -> ReplicaRequirements:
    asked = {name: Quantity(string=text).SerializeToString() for name, text in amounts.items()}
    return ReplicaRequirements(namespace=namespace, resourceRequestBytes=asked)


def flags(port: int) -> list[str]:
    dump = str(DUMPS / "member1.json")
    return ["--cluster", "member1", "--from", dump, "--karmada-port", str(port)]


async def test_a_dump_is_served_without_a_control_plane() -> None:
    port = free_port()
    async with (
        estimator("run", *flags(port)) as agent,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        karmada = EstimatorStub(channel)
        asked = MaxAvailableReplicasRequest(
            cluster="member1", replicaRequirements=requirements(cpu="100m", memory="8Gi")
        )
        answer = await karmada.MaxAvailableReplicas(asked, wait_for_ready=True, timeout=SECONDS)
        everywhere = answer.maxReplicas
        # The quota of namespace payments leaves 14 cores and 23.5 GiB.
        asked.replicaRequirements.namespace = "payments"
        answer = await karmada.MaxAvailableReplicas(asked, timeout=SECONDS)
        assert everywhere > answer.maxReplicas == 2
        code, _ = await agent.stop()
        assert code == 0


def client_pair(files: CertificateFiles) -> tuple[bytes, bytes]:
    """The key and certificate of a client, issued by the authority in ``files``; PEM."""
    ca = x509.load_pem_x509_certificate(files.ca.read_bytes())
    ca_key = serialization.load_pem_private_key(files.ca_key.read_bytes(), password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "karmada-scheduler")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ca.not_valid_before_utc)
        .not_valid_after(ca.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key_pem, certificate.public_bytes(serialization.Encoding.PEM)


async def test_callers_must_show_a_certificate(tmp_path: Path) -> None:
    ours = make_certificates(tmp_path / "ours", ["127.0.0.1"], now=datetime.now(UTC))
    others = make_certificates(tmp_path / "others", ["127.0.0.1"], now=datetime.now(UTC))
    port = free_port()
    tls = [
        *("--karmada-tls-cert", str(ours.cert), "--karmada-tls-key", str(ours.key)),
        *("--karmada-client-ca", str(ours.ca), "--karmada-host", "127.0.0.1"),
    ]
    root = ours.ca.read_bytes()

    async def ask(key: bytes | None, certificate: bytes | None) -> int:
        credentials = grpc.ssl_channel_credentials(root, key, certificate)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            answer = await EstimatorStub(channel).MaxAvailableReplicas(
                MaxAvailableReplicasRequest(cluster="member1"), timeout=PATIENCE_SECONDS
            )
            replicas: int = answer.maxReplicas
            return replicas

    async with estimator("run", *flags(port), *tls):
        await until_listening(port)
        assert await ask(*client_pair(ours)) > 0
        for pair in ((None, None), client_pair(others)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(*pair)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_renewed_tls_files_are_read_after_sighup_which_ends_nobody(tmp_path: Path) -> None:
    ours = make_certificates(tmp_path / "ours", ["127.0.0.1"], now=datetime.now(UTC))
    renewed = make_certificates(tmp_path / "renewed", ["127.0.0.1"], now=datetime.now(UTC))
    shown = CertificateFiles.within(tmp_path)
    port = free_port()
    tls = [
        *("--karmada-tls-cert", str(shown.cert), "--karmada-tls-key", str(shown.key)),
        *("--karmada-client-ca", str(shown.ca), "--karmada-host", "127.0.0.1"),
    ]

    def show(files: CertificateFiles) -> None:
        for name in ("cert", "key", "ca"):
            getattr(shown, name).write_bytes(getattr(files, name).read_bytes())

    async def is_answered(files: CertificateFiles, root: bytes) -> bool:
        credentials = grpc.ssl_channel_credentials(root, *client_pair(files))
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            try:
                await EstimatorStub(channel).MaxAvailableReplicas(
                    MaxAvailableReplicasRequest(cluster="member1"), timeout=PATIENCE_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return False
            return True

    root, new_root = ours.ca.read_bytes(), renewed.ca.read_bytes()
    show(ours)
    async with estimator("run", *flags(port), *tls) as agent:
        await until_listening(port)
        assert await is_answered(ours, root)
        show(renewed)
        agent.process.send_signal(signal.SIGHUP)
        await until(partial(is_answered, renewed, new_root), bool)
        assert not await is_answered(ours, new_root)
        assert not await is_answered(renewed, root)
        assert (await agent.stop())[0] == 0


async def until_listening(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while not await listens(port):  # noqa: ASYNC110 - the other side is a process
            await asyncio.sleep(0.05)


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_a_port_that_is_taken_ends_the_agent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with estimator("run", *flags(taken.getsockname()[1])) as agent:
            code, said = await agent.end()
    assert code == 1
    assert "cannot serve Karmada on 127.0.0.1:" in said


async def test_an_interrupt_ends_it() -> None:
    port = free_port()
    async with estimator("run", *flags(port)) as agent:
        await until_listening(port)
        code, _ = await agent.stop(signal.SIGINT)
        assert code == 0
