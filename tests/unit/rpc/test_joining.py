from __future__ import annotations

import shlex

from federation.rpc.joining import Advertised, join_command


def flags(command: str) -> dict[str, str]:
    token, program, verb, *rest = shlex.split(command)
    assert (token, program, verb) == ("ESTIMATOR_JOIN_TOKEN=id.secret", "estimator", "run")
    named: dict[str, str] = {}
    for word in rest:
        if word.startswith("--"):
            named[word] = ""
        else:
            named[list(named)[-1]] = word
    return named


def test_the_command_pins_the_ca() -> None:
    advertised = Advertised(
        endpoint="api.example:7443", ca_url="http://api.example:7080/ca.pem", ca_sha256="ab12"
    )
    assert flags(join_command(advertised, "member1", "id.secret")) == {
        "--cluster": "member1",
        "--endpoint": "api.example:7443",
        "--ca-url": "http://api.example:7080/ca.pem",
        "--ca-sha256": "ab12",
        "--credential-file": "member1.credential",
    }


def test_plain_text_is_said_and_nothing_is_pinned() -> None:
    found = flags(join_command(Advertised(endpoint="127.0.0.1:7443"), "member1", "id.secret"))
    assert "--insecure" in found
    assert not {"--ca-url", "--ca-sha256"} & set(found)
