"""uv's variables for what pip is set to: uv reads none of pip's files and variables.

Runs before anything is installed: standard library only.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# Later ones win, as in pip: what is set for all its commands, for install, by variables.
SECTIONS = ("global", "install", ":env:")
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_OFFLINE",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
# pip takes these for its certificates, uv does not.
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def pip_settings(listed: str) -> dict[str, str]:
    """Return the settings that ``pip config list`` printed, by the option's long name."""
    settings: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        key, equals, value = line.partition("=")
        section, dot, name = key.rpartition(".")
        if equals and dot and section in settings:
            try:
                settings[section][name] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                continue  # A warning of pip's that looks like a setting.
    return {name: value for section in SECTIONS for name, value in settings[section].items()}


def uv_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv; what its user set for uv itself stays."""
    variables = {
        VARIABLES[name]: _written(name, value)
        for name, value in settings.items()
        if name in VARIABLES
    }
    for bundle in BUNDLES:
        if environment.get(bundle) and "SSL_CERT_FILE" not in environment:
            variables.setdefault("SSL_CERT_FILE", environment[bundle])
    of_uv = {name: value for name, value in environment.items() if name.startswith("UV_")}
    return {
        **environment,
        # As pip does; which of several files is the right one, the hashes say.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_SYSTEM_CERTS": "true",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "true",
        **({} if _own_home(environment) else {"UV_NO_CACHE": "true"}),
        **{name: value for name, value in variables.items() if value},
        **of_uv,
    }


def _written(name: str, value: str) -> str:
    if name == "find-links":
        return ",".join(_present(value.split()))
    if name == "no-index":
        return "true" if value.lower() in {"1", "true", "yes", "on", "y", "t"} else ""
    return " ".join(value.split())


def _present(places: Iterable[str]) -> list[str]:
    """Without the folders that are not there: a warning to pip, an error to uv."""
    return [place for place in places if "://" in place or Path(place).exists()]


def _own_home(environment: Mapping[str, str]) -> bool:
    """Whether a cache may be made there: not as root in somebody's home, nor without any."""
    home = Path(environment.get("HOME", ""))
    try:
        return home.is_absolute() and home.stat().st_uid == os.getuid()
    except OSError:
        return False
