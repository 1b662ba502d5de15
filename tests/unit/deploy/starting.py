"""What a control plane that is made of Kubernetes objects is started with.

Must not judge it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from federation.certificates import make_certificates
from federation.runtime.settings import LoadedSettings, load_settings

Objects = Mapping[tuple[str, str], Any]
NAME = "fedsched-control-plane"
DATABASE_URL = "postgresql://fedsched@db.example/fedsched"
POD_IP = "10.0.0.7"
# What Secrets of a certificate hold.
TLS = ("tls.crt", "tls.key", "ca.crt")


class Started(NamedTuple):
    """``settings`` have the files' paths on this machine in place of those in the pod."""

    settings: LoadedSettings
    environment: Mapping[str, str]


def by_name(objects: Iterable[Any]) -> dict[tuple[str, str], Any]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def pod(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment", NAME]["spec"]["template"]["spec"]
    return spec


def container(objects: Objects) -> dict[str, Any]:
    (serving,) = pod(objects)["containers"]
    spec: dict[str, Any] = serving
    return spec


def environment(objects: Objects) -> dict[str, str]:
    """What the container is given, on a pod with that address."""
    values = dict(objects["ConfigMap", f"{NAME}-settings"]["data"])
    known = {"FEDERATION_DATABASE_URL": DATABASE_URL, "POD_IP": POD_IP}
    for variable in container(objects)["env"]:
        value = variable.get("value", known.get(variable["name"]))
        values[variable["name"]] = value.replace("$(POD_IP)", POD_IP)
    return values


def started(objects: Objects, folder: Path) -> Started:
    """As the container would be, with the files of its volumes in a folder."""
    given = environment(objects)
    values = dict(given)
    for mounted, kept in _files(objects, folder).items():
        values = {name: str(kept) if text == mounted else text for name, text in values.items()}
    loaded = load_settings(
        flags={}, environment=values, document={}, source="", data_dir=folder / "unused"
    )
    return Started(settings=loaded, environment=given)


def _files(objects: Objects, folder: Path) -> dict[str, Path]:
    """By its path in the pod, each file that a volume holds: certificates where it is a Secret."""
    found = {}
    volumes = {each["name"]: each for each in pod(objects)["volumes"]}
    for mount in container(objects)["volumeMounts"]:
        volume = volumes[mount["name"]]
        kept = folder / volume["name"]
        if "configMap" in volume:
            kept.mkdir()
            for name, text in objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
                (kept / name).write_text(text, encoding="utf-8")
                found[f"{mount['mountPath']}/{name}"] = kept / name
        elif "secret" in volume:
            made = make_certificates(kept, ["fedsched.example"])
            names = {each["key"] for each in volume["secret"].get("items", ())} or set(TLS)
            files = dict(zip(TLS, (made.cert, made.key, made.ca), strict=True))
            found |= {f"{mount['mountPath']}/{name}": files[name] for name in names}
    return found
