"""Releases side by side: the agent of the release before, from its wheel, and our control plane.

``BASELINE`` names the commit that the release before was made of; it moves with each release. Its
control planes stop before ours begin, because tables get a schema of their own: see
``tests/migration/test_earlier_releases.py``.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.servers import ROOT
from tests.api.calls import binding
from tests.e2e.test_several_planes import Plane, Planes, await_known, serving, soon
from tests.wheels import built_wheel, installed
from tools.dist import unpack

BASELINE = (Path(__file__).parent / "BASELINE").read_text(encoding="ascii").strip()
BEFORE, OURS = "0.1.0", version("fedsched")


@pytest.fixture(scope="session")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what its wheel installs."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", BASELINE], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip("the commit of the release before is not in this clone: git fetch --unshallow")
    source = tmp_path_factory.mktemp("source")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        unpack(archive, source)
    wheel = built_wheel(source, tmp_path_factory.mktemp("dist"))
    return installed(wheel, {"control-plane", "estimator"}, tmp_path_factory.mktemp("site"))


@pytest.fixture
def planes(database_url: str, tmp_path: Path) -> Iterator[Planes]:
    with serving(1, database_url, tmp_path) as found:
        yield found


def schedule(plane: Plane, name: str) -> Any:
    """The decision about one replica of one core, which does not wait for room."""
    one = binding(name, replicas=1, placement={"replica_scheduling": None})
    return plane.ask("Schedule", binding=one, wait=False).decision


def test_an_agent_of_the_release_before_works_and_is_told_of(
    release_before: Path, planes: Planes
) -> None:
    (plane,) = planes.all
    with planes.agent(plane, site=release_before):
        await_known(plane)
        soon(lambda: plane.estimates_exactly)
        assert plane.cluster().status.agent.version == BEFORE
        assert schedule(plane, "web").outcome == OUTCOME_SCHEDULED
    plane.server.await_line(
        rf"agent of another release cluster=member1 .*{BEFORE}.*{OURS}|"
        rf"agent of another release cluster=member1 .*{OURS}.*{BEFORE}"
    )


def test_an_agent_two_releases_before_is_refused_by_name(
    release_before: Path, planes: Planes, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    for each in release_before.iterdir():
        (older / each.name).symlink_to(each)
    # The same programs, which say that they are of a release that is farther away.
    name = f"fedsched-{BEFORE}.dist-info"
    (older / name).unlink()
    (older / "fedsched-9.9.0.dist-info").mkdir()
    metadata = (release_before / name / "METADATA").read_text(encoding="utf-8")
    (older / "fedsched-9.9.0.dist-info" / "METADATA").write_text(
        metadata.replace(f"\nVersion: {BEFORE}\n", "\nVersion: 9.9.0\n"), encoding="utf-8"
    )
    (plane,) = planes.all
    with planes.agent(plane, site=older) as agent:
        assert agent.wait(60) == 1
    with pytest.raises(grpc.RpcError) as missing:
        plane.cluster()
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
