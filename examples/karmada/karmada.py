"""A Karmada to try the bridge with: an API server on this machine, and nothing behind it.

    python examples/karmada/karmada.py serve karmada.config examples/karmada/clusters.yaml
    python examples/karmada/karmada.py create karmada.config examples/karmada/binding.yaml
    python examples/karmada/karmada.py show karmada.config store/web-deployment

``serve`` writes a kubeconfig once it listens, and runs until Ctrl-C; ``show`` waits until a
scheduler has said what became of the binding. Needs a checkout: the server is that of the tests.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/{}/resourcebindings"
WAIT_SECONDS = 60.0


def serve(config: Path, files: list[str]) -> None:
    from lab.karmadas import Karmada, namespace, new_karmada_server  # noqa: PLC0415 - here alone

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with new_karmada_server() as server:
        karmada = Karmada(server)
        karmada.put(namespace("store"), *(each for name in files for each in documents(name)))
        made = server.kubeconfig(config.with_suffix(".new"))
        made.replace(config)
        print(f"Karmada's API at {server.url}, with {len(files)} files of objects", flush=True)
        stopping.wait()


def create(config: Path, files: list[str]) -> None:
    for document in (each for name in files for each in documents(name)):
        path = BINDINGS.format(document["metadata"]["namespace"])
        called(config, path, document)
        print(f"{document['kind']} {document['metadata']['name']} created")


def show(config: Path, names: list[str]) -> None:
    for name in names:
        where, _, called_so = name.partition("/")
        found = scheduled(config, f"{BINDINGS.format(where)}/{called_so}")
        written = {
            "metadata": {"annotations": found["metadata"].get("annotations", {})},
            "spec": {"clusters": found["spec"].get("clusters", [])},
            "status": found["status"],
        }
        print(yaml.safe_dump(written, sort_keys=False, width=100), end="")


def scheduled(config: Path, path: str) -> dict[str, Any]:
    """The binding, once it has the condition Scheduled."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = called(config, path)
        conditions = found.get("status", {}).get("conditions", [])
        if any(each["type"] == "Scheduled" for each in conditions):
            return found
        if time.monotonic() > deadline:
            sys.exit(f"{path}: nobody has scheduled it within {WAIT_SECONDS:g} s")
        time.sleep(0.1)


def called(config: Path, path: str, body: object = None) -> dict[str, Any]:
    settings = json.loads(config.read_text(encoding="utf-8"))
    server = settings["clusters"][0]["cluster"]["server"]
    token = settings["users"][0]["user"]["token"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server}{path}", data=data, headers=headers)  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:  # noqa: S310 - see above
        content: dict[str, Any] = json.load(answer)
    return content


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(Path(name).read_text(encoding="utf-8")))


if __name__ == "__main__":
    verbs = {"serve": serve, "create": create, "show": show}
    if len(sys.argv) < 4 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    verbs[sys.argv[1]](Path(sys.argv[2]), sys.argv[3:])
