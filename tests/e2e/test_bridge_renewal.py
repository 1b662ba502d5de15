"""A bridge whose token, authority and kubeconfig are replaced while it runs."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federation.bridge.app import BridgeSettings
from federation.certificates import CertificateFiles, make_certificates
from federation.client import Client, Target
from federation.model.access import Role
from lab.bridges import bridge_process, control_plane
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.karmadas import Karmada, binding, bridging, member, new_karmada_server, until


@pytest.fixture
def karmada() -> Iterator[Karmada]:
    with new_karmada_server() as server:
        yield Karmada(server)


def tls_of(files: CertificateFiles) -> dict[str, str]:
    """Flags of a control plane that shows these."""
    return {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}


async def revoke_first_token(plane: RunningControlPlane) -> None:
    listed = await plane.ask("ListTokens")
    first = min(
        (each for each in listed.tokens if each.name == Role.BRIDGE.value),
        key=lambda each: each.create_time.ToNanoseconds(),
    )
    await plane.ask("RevokeToken", id=first.id)


async def test_a_new_token_and_authority_are_used_and_nobody_ends(
    karmada: Karmada,
    database_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = "federation.runtime.watched_files.FileWatch"
    monkeypatch.setattr(f"{watch}.__init__.__defaults__", (0.1,))
    caplog.set_level(logging.INFO, logger="federation.runtime.watched_files")
    files = make_certificates(tmp_path / "certs", ["127.0.0.1"])
    others = make_certificates(tmp_path / "others", ["127.0.0.1"])
    tls: dict[str, Any] = tls_of(files)
    token_file, ca = tmp_path / "bridge.token", tmp_path / "ca.pem"
    karmada.put(member("m1", cpu="100"), binding("web"))
    async with running_control_plane(database_url, tmp_path / "state", **tls) as plane:
        token_file.write_text(await plane.token(Role.BRIDGE), encoding="ascii")
        ca.write_bytes(files.ca.read_bytes())
        settings = BridgeSettings(
            target=Target(endpoint=str(plane.plane.endpoint)),
            kubeconfig=karmada.kubeconfig(tmp_path),
            scheduler_name="fedsched",
            as_karmada=False,
            token_file=token_file,
            ca=ca,
        )
        async with bridging(
            karmada.kubeconfig(tmp_path),
            settings.newest_target(),
            token_file=token_file,
            ca=ca,
        ):
            await until(lambda: karmada.is_settled("web"))
            token_file.write_text(await plane.token(Role.BRIDGE) + "\n", encoding="ascii")
            ca.write_bytes(others.ca.read_bytes() + files.ca.read_bytes())
            await until(lambda: "files were read again" in caplog.text)
            await revoke_first_token(plane)
            karmada.put(binding("later"), member("m2", cpu="100"))
            await until(lambda: karmada.is_settled("later"))
            here = {"clusterAffinity": {"clusterNames": ["m2"]}}
            karmada.put(binding("there", placement=here))
            await until(lambda: karmada.is_settled("there"))


async def test_an_authority_that_is_replaced_counts_for_the_next_connection(
    database_url: str, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path / "certs", ["127.0.0.1"])
    others = make_certificates(tmp_path / "others", ["127.0.0.1"])
    tls: dict[str, Any] = tls_of(files)
    async with running_control_plane(database_url, tmp_path / "state", **tls) as plane:
        endpoint, token = str(plane.plane.endpoint), await plane.token(Role.VIEWER)
        wrong = Target(endpoint=endpoint, token=token, ca_pem=others.ca.read_bytes())
        async with Client(wrong) as client:
            client.renew(Target(endpoint=endpoint, token=token, ca_pem=files.ca.read_bytes()))
            assert await client.list_clusters() == []


async def test_sighup_reads_the_files_and_ends_nobody(karmada: Karmada, tmp_path: Path) -> None:
    karmada.put(member("m1", cpu="100"), binding("web"))
    log = tmp_path / "bridge.log"
    with (
        control_plane(tmp_path) as (_, endpoint),
        bridge_process(karmada, tmp_path, endpoint, "renewal") as bridge,
    ):
        await until(lambda: karmada.is_settled("web"))
        kubeconfig = tmp_path / "karmada.config"
        content = kubeconfig.read_text(encoding="utf-8")
        kubeconfig.write_text(f"{content}\n", encoding="utf-8")
        bridge.send_signal(signal.SIGHUP)
        await until(lambda: re.search("read again.*kubeconfig", log.read_text()) is not None)
        karmada.put(binding("later"))
        await until(lambda: karmada.is_settled("later"))
        assert bridge.poll() is None
