"""An extender over HTTP, as kube-scheduler calls it: names only, five seconds, one answer.

Must not retry: kube-scheduler does not.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from lab.truth.kube_scheduler import ExtenderFailed

TIMEOUT_SECONDS = 5.0


class HttpExtender:
    """``url`` is its urlPrefix. ``refusals`` are the newest reasons, by node.

    ``before_filter`` has, by uid, a callback for the moment in which the pod's first call is under
    way.
    """

    def __init__(self, url: str, *, weight: int = 1) -> None:
        self.weight = weight
        self.refusals: dict[str, str] = {}
        self.before_filter: dict[str, Callable[[], None]] = {}
        self._url = urlsplit(url)
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def filter(self, pod: bytes, nodes: list[str]) -> list[str]:
        if self.before_filter:
            uid = msgspec.json.decode(pod)["metadata"]["uid"]
            self.before_filter.pop(uid, lambda: None)()
        answer = self._post("filter", pod, nodes)
        if answer.get("Error"):
            raise ExtenderFailed(answer["Error"])
        self.refusals = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
        kept: list[str] = answer["NodeNames"] or []
        return kept

    def prioritize(self, pod: bytes, nodes: list[str]) -> dict[str, int]:
        return {each["Host"]: each["Score"] for each in self._post("prioritize", pod, nodes)}

    def _post(self, verb: str, pod: bytes, nodes: list[str]) -> Any:
        body = msgspec.json.encode({"Pod": msgspec.Raw(pod), "Nodes": None, "NodeNames": nodes})
        try:
            status, content = self._exchange(verb, body)
        except (OSError, http.client.HTTPException) as error:
            raise ExtenderFailed(f"{verb}: {error!r}") from error
        if status != http.client.OK:
            raise ExtenderFailed(f"{verb}: HTTP status {status}")
        return msgspec.json.decode(content)

    def _exchange(self, verb: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is not None:
            try:
                return self._ask(self._connection, verb, body)
            except ConnectionError:
                # The server closed it while nothing was asked; Go's client dials anew then, too.
                self.close()
        host, port = self._url.hostname or "", self._url.port
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        try:
            return self._ask(self._connection, verb, body)
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _ask(
        self, connection: http.client.HTTPConnection, verb: str, body: bytes
    ) -> tuple[int, bytes]:
        path = f"{self._url.path.rstrip('/')}/{verb}"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
