"""Print what pip is set to as uv's variables, for a shell to evaluate: uv reads no setting of pip.

Runs before anything is installed: standard library only.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# Later ones win, as in pip: settings of all its commands, those of install, and variables.
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
# As pip does; the hashes say which of several files is the right one.
ALWAYS = {
    "UV_INDEX_STRATEGY": "unsafe-best-match",
    "UV_SYSTEM_CERTS": "true",
    "UV_PYTHON_DOWNLOADS": "never",
}


def pip_settings(listed: str) -> dict[str, str]:
    """Return the settings that ``pip config list`` printed, by the option's long name."""
    settings: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        key, equals, value = line.partition("=")
        section, dot, name = key.rpartition(".")
        if equals and dot and section in settings:
            try:
                settings[section][name] = " ".join(str(ast.literal_eval(value)).split())
            except (ValueError, SyntaxError):
                continue  # A warning of pip's that looks like a setting.
    return {name: value for section in SECTIONS for name, value in settings[section].items()}


def uv_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for uv; those that the environment has for uv itself win."""
    variables = dict(ALWAYS)
    for name, variable in VARIABLES.items():
        value = settings.get(name, "")
        if name == "no-index":
            value = "true" if value.lower() in {"1", "true", "yes", "on", "y", "t"} else ""
        elif name == "find-links":
            # A folder that is not there is a warning to pip, and an error to uv.
            places = value.split()
            value = ",".join(at for at in places if "://" in at or Path(at).exists())
        if value:
            variables[variable] = value
    for bundle in BUNDLES:
        if environment.get(bundle) and "SSL_CERT_FILE" not in environment:
            variables.setdefault("SSL_CERT_FILE", environment[bundle])
    if not _has_own_home(environment):
        variables["UV_NO_CACHE"] = "true"
    return {
        name: value
        for name, value in variables.items()
        if not (name.startswith("UV_") and name in environment)
    }


def _has_own_home(environment: Mapping[str, str]) -> bool:
    """Whether a cache may be made there: not as root in somebody's home, nor without any."""
    home = Path(environment.get("HOME", ""))
    try:
        return home.is_absolute() and home.stat().st_uid == os.getuid()
    except OSError:
        return False


def main() -> None:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for name, value in uv_variables(pip_settings(listed), os.environ).items():
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
