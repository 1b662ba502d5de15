"""Whether the bridge was held up to a real API server with Karmada's kinds, or to the fake alone.

How a real one is started is tried with stand-ins for its programs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from lab.karmadas import binding, member, targets_of
from lab.kubeapi.resources import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS, Resource
from tests.karmada_api import KarmadaApi
from tests.karmada_servers import VARIABLE, lacking, real_karmada

ROOT = Path(__file__).parents[2]


def executable(path: Path, module: str) -> None:
    script = f"""\
        #!{sys.executable}
        import runpy, sys
        sys.path.insert(0, {str(ROOT)!r})
        runpy.run_module({module!r}, run_name="__main__")
        """
    path.write_text(dedent(script), encoding="utf-8")
    path.chmod(0o700)


def definition(resource: Resource) -> str:
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return yaml.safe_dump(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": resource.qualified},
            "spec": {
                "group": resource.group,
                "scope": scope,
                "names": {"kind": resource.kind, "plural": resource.plural},
                "conversion": {"strategy": "Webhook"},
                "versions": [{"name": resource.version, "served": True, "storage": True}],
            },
        }
    )


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """A folder as KARMADA_ASSETS names one."""
    folder = tmp_path / "assets"
    (folder / "crds" / "work").mkdir(parents=True)
    for program in ("etcd", "kube-apiserver"):
        executable(folder / program, f"lab.kubeapi.standins.{program.replace('-', '_')}")
    for resource in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS):
        path = folder / "crds" / "work" / f"{resource.plural}.yaml"
        path.write_text(definition(resource), encoding="utf-8")
    return folder


def check(api: KarmadaApi) -> None:
    """Kinds are served with their status, and what is read is what was written."""
    api.create(member("m1"), binding("web", clusters=[{"name": "m1", "replicas": 4}]))
    api.edit("web", status={"schedulerObservedGeneration": 1})
    web = api.binding("web")
    assert targets_of(web) == {"m1": 4}
    assert web["status"] == {"schedulerObservedGeneration": 1}
    assert web["metadata"]["generation"] == 1


def test_a_real_server_is_asked_too(tmp_path: Path) -> None:
    assets = os.environ.get(VARIABLE)
    if not assets:
        pytest.skip(f"{VARIABLE} is not set: no etcd and kube-apiserver to run Karmada's kinds on")
    if why := lacking(Path(assets)):
        pytest.skip(why)
    with real_karmada(Path(assets), tmp_path) as api:
        check(api)


def test_a_server_is_started_and_given_the_kinds(assets: Path, tmp_path: Path) -> None:
    assert lacking(assets) == ""
    with real_karmada(assets, tmp_path) as api:
        check(api)


def test_what_is_lacking_is_said(assets: Path, tmp_path: Path) -> None:
    assert "is no folder" in lacking(tmp_path / "nowhere")
    (assets / "crds" / "work" / "resourcebindings.yaml").unlink()
    assert lacking(assets).endswith("whose crds/ define no resourcebindings")
    (assets / "etcd").unlink()
    assert lacking(assets).endswith("where there is no etcd to run")
