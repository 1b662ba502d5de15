"""The address and the credentials of an API server: a service account's, or those of a kubeconfig.

Must not send requests. Everything here blocks: credentials are loaded in a thread.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from federation.model.errors import PreconditionFailed
from federation.runtime.tokens import checked_token

SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
BEARER: Final = "BearerToken"
# Keys of a kubeconfig that name files, in its clusters and in its users.
_FILE_KEYS: Final = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}
# The loader of a kubeconfig takes for granted that the file is whole, and of the right shape.
_MISSHAPEN: Final = (ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way to an API server, as it was when it was loaded.

    ``identity`` is the same as long as open connections serve newer credentials, too.
    ``expires_at`` is in Unix seconds; None: the credentials do not say when they end.
    """

    url: str
    authorization: str
    tls: ssl.SSLContext | None
    identity: tuple[object, ...]
    server_name: str | None = None
    proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """The credentials that Kubernetes gives to a pod, in files that it renews."""

    url: str
    token: Path
    authority: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.token, self.authority)

    @property
    def exists(self) -> bool:
        return all(map(Path.is_file, self.files))


def service_account(environment: Mapping[str, str]) -> ServiceAccount | None:
    """Return the service account of the pod with these variables; None outside of pods."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    name = f"[{host}]" if ":" in host or "%" in host else host
    return ServiceAccount(
        url=f"https://{name}:{port}",
        token=SERVICE_ACCOUNT_FOLDER / "token",
        authority=SERVICE_ACCOUNT_FOLDER / "ca.crt",
    )


def access_files(kubeconfig: Path | None, account: ServiceAccount | None) -> list[Path]:
    """Return the files that access is loaded from; none for the user's own kubeconfig."""
    if kubeconfig is not None:
        return [kubeconfig, *_named_files(kubeconfig)]
    return list(account.files) if account is not None and account.exists else []


def load_access(kubeconfig: Path | None, account: ServiceAccount | None) -> Access:
    """Return access by the kubeconfig, else by the service account, else by the user's kubeconfig.

    Raises PreconditionFailed where there is no usable configuration.
    """
    try:
        if kubeconfig is None and account is not None and account.exists:
            return _access_of_account(account)
        return _access_of_kubeconfig(kubeconfig)
    except (yaml.YAMLError, OSError, *_MISSHAPEN) as error:
        source = kubeconfig or "a service account or the user's kubeconfig"
        raise PreconditionFailed(f"no access to Kubernetes by {source}: {error}") from error


def _access_of_account(account: ServiceAccount) -> Access:
    where = f"the service account's token file {account.token}"
    token = checked_token(account.token.read_text(encoding="ascii", errors="replace"), where)
    authority = account.authority.read_text(encoding="ascii")
    proxies = urllib.request.getproxies()
    proxy = _usable_proxy(account.url, proxies.get("https"), proxies.get("no"))
    return Access(
        url=account.url,
        authorization=f"Bearer {token}",
        tls=ssl.create_default_context(cadata=authority),
        identity=(account.url, authority, proxy),
        proxy=proxy,
    )


def _access_of_kubeconfig(kubeconfig: Path | None) -> Access:
    # Loading it takes a fifth of a second of CPU, which agents in clusters do without.
    from kubernetes import config  # noqa: PLC0415 - see above
    from kubernetes.client import Configuration  # noqa: PLC0415 - see above
    from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415 - see above

    kube_config: Any = config.kube_config
    name = str(kubeconfig) if kubeconfig is not None else kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    configuration: Any = Configuration()
    try:
        merger = kube_config.KubeConfigMerger(name)
        loader = kube_config.KubeConfigLoader(
            config_dict=merger.config, config_base_path=None, config_persister=merger.save_changes
        )
        loader.load_and_set(configuration)
    except ConfigException as error:
        raise ValueError(str(error)) from error
    source = f"kubeconfig {kubeconfig}" if kubeconfig is not None else "the user's kubeconfig"
    expiry = getattr(loader, "expiry", None)
    proxy = _usable_proxy(configuration.host, configuration.proxy, configuration.no_proxy)
    return Access(
        url=configuration.host.rstrip("/"),
        authorization=_authorization(
            configuration.api_key.get(BEARER), f"{source} (or the tokenFile that it names)"
        ),
        tls=_tls(configuration) if configuration.host.startswith("https") else None,
        identity=(
            configuration.host,
            configuration.verify_ssl,
            configuration.tls_server_name,
            proxy,
            *map(_digest, _tls_files(configuration)),
        ),
        server_name=configuration.tls_server_name or None,
        proxy=proxy,
        proxy_headers=configuration.proxy_headers,
        expires_at=expiry.timestamp() if expiry is not None else None,
    )


def _authorization(header: str | None, where: str) -> str:
    """Return the header; an HTTP library would show one that it refuses, and so the token."""
    if header is None:
        return ""
    scheme, _, credential = header.partition(" ")
    return f"{scheme} {checked_token(credential, where)}"


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _tls_files(configuration: Any) -> Iterator[str]:
    names = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return (name for name in names if name)


def _digest(name: str) -> bytes:
    return hashlib.sha256(Path(name).read_bytes()).digest()


def _usable_proxy(url: str, proxy: str | None, no_proxy: str | None) -> str | None:
    """Return the proxy that leads to the URL; None where it is reached without one."""
    if not proxy or is_direct(url, no_proxy or ""):
        return None
    if not proxy.startswith(("http://", "https://")):
        raise ValueError(f"the proxy {proxy} is of a kind that is not supported: use http or https")
    return proxy


def is_direct(url: str, no_proxy: str) -> bool:
    """Whether the comma-separated rules of ``no_proxy`` name the host of the URL."""
    parts = urlsplit(url.lower())
    host = parts.hostname or ""
    for rule in filter(None, (entry.strip().lower() for entry in no_proxy.split(","))):
        if rule == "*" or _is_in_network(host, rule):
            return True
        suffix = rule.lstrip(".")
        if any(name == suffix or name.endswith(f".{suffix}") for name in (host, parts.netloc)):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _named_files(kubeconfig: Path) -> Iterator[Path]:
    """Yield the files that a kubeconfig names."""
    try:
        content: Any = yaml.safe_load(kubeconfig.read_bytes())
    except (OSError, yaml.YAMLError):
        return
    for section, keys in _FILE_KEYS.items():
        entries = content.get(section) if isinstance(content, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            inner = entry.get(section.removesuffix("s")) if isinstance(entry, dict) else None
            names = [inner.get(key) for key in keys] if isinstance(inner, dict) else []
            yield from (kubeconfig.parent / name for name in names if isinstance(name, str))
