from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from federation.model.errors import InvalidRequest
from federation.runtime.addresses import parse_address
from federation.runtime.database_url import masked_url
from federation.runtime.settings import (
    OPTIONS,
    LoadedSettings,
    Settings,
    check_serving,
    load_settings,
)


def load(
    *,
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    document: dict[str, object] | None = None,
) -> LoadedSettings:
    return load_settings(
        flags=flags or {},
        environment=environment or {},
        document=document or {},
        source="fedsched.yaml",
        data_dir=Path("/state/fedsched"),
    )


def violations_of(**layers: dict[str, object]) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        load(**layers)
    return {violation.field: violation.rule for violation in caught.value.violations}


def test_every_setting_has_an_option_and_every_option_a_setting() -> None:
    assert [option.name for option in OPTIONS] == [field.name for field in fields(Settings)]


def test_defaults_alone_are_complete() -> None:
    settings = load().settings
    assert str(settings.listen) == "127.0.0.1:7443"
    assert str(settings.web_listen) == "127.0.0.1:7080"
    assert settings.data_dir == Path("/state/fedsched")
    assert settings.database_url == ""
    assert settings.tls_cert is None
    assert not settings.insecure


def test_flags_win_over_environment_over_file_over_defaults() -> None:
    document: dict[str, object] = {"listen": "h:1", "web_listen": "h:2", "data_dir": "/file"}
    environment = {"FEDERATION_LISTEN": "h:3", "FEDERATION_WEB_LISTEN": "h:4"}
    loaded = load(flags={"listen": "h:5"}, environment=environment, document=document)
    assert str(loaded.settings.listen) == "h:5"
    assert str(loaded.settings.web_listen) == "h:4"
    assert loaded.settings.data_dir == Path("/file")
    assert {
        name: str(loaded.options.origins[name]) for name in ("listen", "web_listen", "data_dir")
    } == {
        "listen": "flag --listen",
        "web_listen": "environment FEDERATION_WEB_LISTEN",
        "data_dir": "file fedsched.yaml: data_dir",
    }
    assert str(loaded.options.origins["log_level"]) == "default"


def test_everything_wrong_is_told_at_once_under_the_name_it_was_written_as() -> None:
    rules = violations_of(
        flags={"listen": "nowhere"},
        environment={"FEDERATION_DATABASE_URL": "mysql://x", "FEDERATION_INSECURE": "perhaps"},
        document={"colour": "blue", "log_level": ["info"], "heartbeat_seconds": "nan"},
    )
    assert set(rules) == {
        "--listen",
        "FEDERATION_DATABASE_URL",
        "FEDERATION_INSECURE",
        "fedsched.yaml: colour",
        "fedsched.yaml: log_level",
        "fedsched.yaml: heartbeat_seconds",
    }
    assert "HOST:PORT" in rules["--listen"]
    assert "listen" in rules["fedsched.yaml: colour"]


def test_variables_that_kubernetes_sets_for_a_service_named_federation_do_no_harm() -> None:
    environment = {
        "FEDERATION_PORT": "tcp://10.0.0.1:7443",
        "FEDERATION_SERVICE_HOST": "x",
        "FEDERATION_SERVICE_PORT_API": "7443",
        "FEDERATION_PORT_7443_TCP": "tcp://10.0.0.1:7443",
        "FEDERATION_WEB_PORT_7080_TCP_ADDR": "10.0.0.1",
    }
    assert load(environment=environment).warnings == []


def test_variables_that_mean_nothing_are_warned_about_with_a_near_name() -> None:
    environment = {
        "FEDERATION_DATABSE_URL": "postgresql://u:s3cret@h/d",
        "FEDERATION_CONFIG": "f.yaml",
        "FEDERATION_XYZZY": "7443",
        "FEDCTL_CA": "x",
    }
    assert load(environment=environment).warnings == [
        (
            "FEDERATION_DATABSE_URL is no setting and does nothing; "
            "did you mean FEDERATION_DATABASE_URL?"
        ),
        "FEDERATION_XYZZY is no setting and does nothing",
    ]


def test_file_values_may_be_numbers_and_booleans() -> None:
    settings = load(document={"insecure": True, "database_wait_seconds": 5}).settings
    assert settings.insecure
    assert settings.database_wait_seconds == 5.0


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_the_usual_spellings_of_a_database_url_are_taken(scheme: str) -> None:
    settings = load(environment={"FEDERATION_DATABASE_URL": f"{scheme}://u:p@h:1/d"}).settings
    assert settings.database_url == "postgresql+asyncpg://u:p@h:1/d"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+asyncpg://u:s3cret@h:1/d", "postgresql+asyncpg://u:***@h:1/d"),
        ("postgresql+asyncpg://u:p%40ss@h/d", "postgresql+asyncpg://u:***@h/d"),
        ("postgresql+asyncpg://u@h/d?password=s3cret", "postgresql+asyncpg://u@h/d?password=***"),
        ("postgresql+asyncpg://u@/d?host=/run/pg", "postgresql+asyncpg://u@/d?host=/run/pg"),
        ("postgresql://u:s3cret@[::1]:5432/d", "postgresql://u:***@[::1]:5432/d"),
        ("postgresql:///d?host=/run/pg", "postgresql:///d?host=/run/pg"),
        ("postgresql://[broken", "postgresql://***"),
        ("postgresql://u:s3cret", "postgresql://***"),
        ("host=h password=s3cret", "***"),
    ],
)
def test_passwords_are_masked_wherever_they_are_written(url: str, shown: str) -> None:
    assert masked_url(url) == shown


# A password that is not percent-encoded ends a part of the address before its time.
UNESCAPED = [f"postgresql://user:be{each}hind@host:5432/d?sslmode=require" for each in "/?#@: "]


@pytest.mark.parametrize("url", [*UNESCAPED, "postgresql://user:p@host/d@behind"])
def test_an_address_that_cannot_be_taken_apart_is_refused_and_not_shown(url: str) -> None:
    assert masked_url(url) == "postgresql://***"
    rule = violations_of(environment={"FEDERATION_DATABASE_URL": url})["FEDERATION_DATABASE_URL"]
    assert "percent-encoded" in rule
    assert "hind" not in rule


@pytest.mark.parametrize("name", ["FEDERATION_DATABASE_URL", "FEDERATION_LISTEN"])
@pytest.mark.parametrize("url", ["mysql://user:s3cret@host/d", "mysql+x://user:s3cret@h:1/d?a=b"])
def test_an_address_of_another_kind_is_named_by_its_scheme_alone(name: str, url: str) -> None:
    rule = violations_of(environment={name: url})[name]
    assert "s3cret" not in rule
    assert "user" not in rule
    assert name == "FEDERATION_LISTEN" or f"begins with {url.partition(':')[0]}://" in rule


def test_what_is_no_address_is_not_repeated_either() -> None:
    rules = violations_of(environment={"FEDERATION_DATABASE_URL": "host=h password=s3cret"})
    assert "s3cret" not in rules["FEDERATION_DATABASE_URL"]


def test_shown_settings_hold_no_secret() -> None:
    loaded = load(environment={"FEDERATION_DATABASE_URL": "postgresql://u:s3cret@h/d"})
    rows = {row["name"]: row for row in loaded.options.shown()}
    assert "s3cret" not in str(rows)
    assert rows["database_url"] == {
        "name": "database_url",
        "value": "postgresql+asyncpg://u:***@h/d",
        "origin": "environment FEDERATION_DATABASE_URL",
    }
    assert rows["insecure"]["value"] == "false"
    assert rows["tls_cert"]["value"] == ""


@pytest.mark.parametrize(
    ("text", "shown"), [("[::1]:7443", "[::1]:7443"), ("host.example:0", "host.example:0")]
)
def test_addresses_are_read_and_written_alike(text: str, shown: str) -> None:
    assert str(parse_address(text)) == shown


@pytest.mark.parametrize("text", ["", "host", ":7443", "host:", "host:70000", "::1:7443", "h:x"])
def test_addresses_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


OIDC = {"oidc_issuer": "https://a.b", "oidc_audience": "us", "role_rules": "rules.yaml"}
REVIEW = {
    "token_review": "https://a.b",
    "token_review_audience": "us",
    "role_rules": "rules.yaml",
}
CLIENTS = {"client_listen": "127.0.0.1:1", "client_ca": "us.pem", "role_rules": "rules.yaml"}
ANY_VOUCHER = "--oidc-issuer or --token-review or --client-listen"
TLS = {"tls_cert": "c.pem", "tls_key": "k.pem", "tls_ca": "ca.pem"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_plain_text_is_served_on_loopback(host: str) -> None:
    check_serving(load(flags={"insecure": "true", "listen": f"{host}:1"}))


def test_tls_is_served_everywhere() -> None:
    check_serving(load(flags={**TLS, "listen": "0.0.0.0:1"}))


@pytest.mark.parametrize(
    ("flags", "field", "rule"),
    [
        ({"insecure": "true", "listen": "0.0.0.0:1"}, "--insecure", "loopback"),
        ({"insecure": "true", "listen": "10.0.0.1:1"}, "--insecure", "loopback"),
        ({"insecure": "true", "listen": "localhost.example:1"}, "--insecure", "loopback"),
        ({"insecure": "true", **TLS}, "--insecure", "excludes"),
        ({}, "--tls-cert, --tls-key, --tls-ca", "federation certs"),
        ({"tls_cert": "c.pem", "tls_key": "k.pem"}, "--tls-ca", "TLS"),
        ({**TLS, **OIDC, "oidc_audience": ""}, "--oidc-audience", "beside --oidc-issuer"),
        ({**TLS, **OIDC, "oidc_issuer": ""}, "--oidc-issuer", "beside --oidc-audience"),
        ({**TLS, **OIDC, "role_rules": ""}, "--role-rules", "beside --oidc-issuer"),
        ({**TLS, **OIDC, "oidc_issuer": "http://a.b"}, "--oidc-issuer", "must be https"),
        ({**TLS, **OIDC, "oidc_jwks": "http://a.b"}, "--oidc-jwks", "must be https"),
        ({**TLS, **REVIEW, "token_review": "http://a.b"}, "--token-review", "must be https"),
        ({**TLS, **REVIEW, "token_review_audience": ""}, "--token-review-audience", "beside"),
        (
            {**TLS, "role_rules": "r.yaml"},
            "--oidc-issuer or --token-review or --client-listen",
            "--role-rules",
        ),
    ],
)
def test_what_may_not_be_served_is_refused_by_rule(
    flags: dict[str, str], field: str, rule: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_serving(load(flags=flags))
    assert [violation.field for violation in caught.value.violations] == [field]
    assert rule in caught.value.violations[0].rule


@pytest.mark.parametrize(
    ("flags", "environment", "is_warned"),
    [
        ({"database_url": "postgresql://u:s3cret@h/d"}, {}, True),
        ({"database_url": "postgresql://u@h/d?password=s3cret"}, {}, True),
        ({"database_url": "postgresql://u@h/d"}, {}, False),
        ({}, {"FEDERATION_DATABASE_URL": "postgresql://u:s3cret@h/d"}, False),
    ],
)
def test_a_password_on_the_command_line_is_warned_of(
    flags: dict[str, str], environment: dict[str, str], *, is_warned: bool
) -> None:
    loaded = load_settings(
        flags=flags, environment=environment, document={}, source="", data_dir=Path("state")
    )
    assert any("list this machine's processes" in each for each in loaded.warnings) is is_warned
    assert not any("s3cret" in each for each in loaded.warnings)
