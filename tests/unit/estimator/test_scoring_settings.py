"""Options of the extender and the binder: which go together, and which must not."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from estimator.__main__ import cli
from estimator.settings import ExtenderSettings, ScoringSettings
from federation.runtime.addresses import Address

EXTENDER = ("--extender-listen", "127.0.0.1:9")
LOCAL = ExtenderSettings(listen=Address(host="127.0.0.1", port=9))
OPEN = ("--extender-listen", "0.0.0.0:9")


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["run", "--cluster", "c", *arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--endpoint: is required"),
        (("--extender-listen", "here"), "--extender-listen: must be HOST:PORT"),
        (OPEN, "plain text is served on loopback addresses only, not on 0.0.0.0:9"),
        ((*OPEN, "--extender-tls-cert", "c"), "--extender-tls-key go together"),
        ((*EXTENDER, "--extender-tls-key", "k"), "--extender-tls-key go together"),
        ((*EXTENDER, "--extender-client-ca", "a"), "--extender-client-ca: needs"),
        (
            ("--binder", "--extender-tls-cert", "c", "--extender-tls-key", "k"),
            "--extender-tls-cert: needs --extender-listen",
        ),
        ((*EXTENDER, "--report", "r"), "--extender-listen: needs nodes"),
        (("--binder", "--from", "f"), "--binder: needs a live cluster"),
        (
            ("--karmada-port", "9", "--scoring-config", "s"),
            "--scoring-config: needs --endpoint, --extender-listen or --binder",
        ),
        (("--report", "r", "--scoring-config", "s"), "--scoring-config: needs nodes"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(*arguments)


@pytest.mark.parametrize(
    ("settings", "placer"),
    [
        (ScoringSettings(), "none"),
        (ScoringSettings(extender=LOCAL), "extender"),
        (ScoringSettings(extender=LOCAL, binder=True), "binder"),
    ],
)
def test_control_plane_is_told_who_places(settings: ScoringSettings, placer: str) -> None:
    assert settings.placer == placer
