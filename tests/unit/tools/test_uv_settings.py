"""What pip is set to, as uv's variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.uv_settings import pip_settings, uv_variables

LISTED = """\
:env:.timeout='60'
global.index-url='https://one.example/simple'
global.timeout='5'
install.index-url='https://two.example/simple'
download.index-url='https://never.example/simple'
global.extra-index-url='\\nhttps://three.example/simple\\nhttps://four.example/simple'
a line of something else
"""


def test_settings_for_install_and_variables_win() -> None:
    found = pip_settings(LISTED)
    assert found["timeout"] == "60"
    assert found["index-url"] == "https://two.example/simple"
    assert pip_settings(LISTED.replace(":env:.timeout", "download.timeout"))["timeout"] == "5"


def test_indexes_come_to_uv() -> None:
    variables = uv_variables(pip_settings(LISTED), {})
    assert variables["UV_DEFAULT_INDEX"] == "https://two.example/simple"
    assert variables["UV_INDEX"] == "https://three.example/simple https://four.example/simple"
    assert variables["UV_HTTP_TIMEOUT"] == "60"


@pytest.mark.parametrize(
    ("option", "value", "variable", "meant"),
    [
        (
            "trusted-host",
            "a.example b.example:8443",
            "UV_INSECURE_HOST",
            "a.example b.example:8443",
        ),
        ("cert", "/etc/own.pem", "SSL_CERT_FILE", "/etc/own.pem"),
        ("client-cert", "/etc/me.pem", "SSL_CLIENT_CERT", "/etc/me.pem"),
        ("proxy", "http://proxy.example:3128", "ALL_PROXY", "http://proxy.example:3128"),
        ("no-index", "yes", "UV_OFFLINE", "true"),
        ("no-index", "0", "UV_OFFLINE", None),
    ],
)
def test_the_way_to_the_index_comes_to_uv(
    option: str, value: str, variable: str, meant: str | None
) -> None:
    assert uv_variables({option: value}, {}).get(variable) == meant


def test_what_the_user_set_for_uv_stays() -> None:
    variables = uv_variables(pip_settings(LISTED), {"UV_DEFAULT_INDEX": "https://mine.example"})
    assert "UV_DEFAULT_INDEX" not in variables


def test_certificates_that_pip_finds_by_variable_come_to_uv() -> None:
    given = {"REQUESTS_CA_BUNDLE": "/etc/own.pem"}
    assert uv_variables({}, given)["SSL_CERT_FILE"] == "/etc/own.pem"
    given["SSL_CERT_FILE"] = "/etc/other.pem"
    assert "SSL_CERT_FILE" not in uv_variables({}, given)


def test_folders_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    places = f"{tmp_path} {tmp_path / 'gone'} https://wheels.example"
    assert uv_variables({"find-links": places}, {})["UV_FIND_LINKS"] == (
        f"{tmp_path},https://wheels.example"
    )
    assert "UV_FIND_LINKS" not in uv_variables({"find-links": str(tmp_path / "gone")}, {})


def test_a_home_of_nobody_gets_no_cache(tmp_path: Path) -> None:
    assert "UV_NO_CACHE" not in uv_variables({}, {"HOME": str(tmp_path)})
    for home in ({}, {"HOME": ""}, {"HOME": str(tmp_path / "gone")}):
        assert uv_variables({}, home)["UV_NO_CACHE"] == "true"
