"""Rules between the settings of a server, which no setting can be held to by itself.

Must not read what settings name.
"""

from __future__ import annotations

from collections.abc import Iterator

from federation.model.errors import InvalidRequest, Violation
from federation.runtime.addresses import is_secure_url
from federation.runtime.settings import LoadedSettings


def check_serving(loaded: LoadedSettings) -> None:
    """The rules between settings that hold for a server. Raises InvalidRequest with all broken."""
    settings = loaded.settings
    tls = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    missing = [loaded.options.options[name].flag for name, path in tls.items() if path is None]
    violations = []
    if settings.insecure:
        if len(missing) < len(tls):
            rule = "excludes --tls-cert, --tls-key and --tls-ca: choose one"
            violations.append(Violation(field=loaded.name_of("insecure"), rule=rule))
        if not settings.listen.is_loopback:
            rule = f"plain text is served on loopback addresses only, not on {settings.listen}"
            violations.append(Violation(field=loaded.name_of("insecure"), rule=rule))
    elif missing:
        rule = (
            "the API is served with TLS: give --tls-cert, --tls-key and --tls-ca "
            "(`federation certs --dir DIR` makes them for trying out), "
            "or --insecure for plain text on a loopback address"
        )
        violations.append(Violation(field=", ".join(missing), rule=rule))
    violations += _voucher_violations(loaded)
    if violations:
        raise InvalidRequest(violations, reason="BAD_SETTINGS")


def _voucher_violations(loaded: LoadedSettings) -> Iterator[Violation]:
    """What is asked, for whom, and rules come together: one without the others lets nobody in."""
    settings = loaded.settings
    vouchers = {
        "oidc_issuer": ("oidc_audience", "oidc_jwks", "oidc_ca"),
        "token_review": ("token_review_audience",),
        "client_listen": ("client_ca",),
    }
    named = list[str]()
    for asked, (beside, *more) in vouchers.items():
        given = [name for name in (asked, beside, *more) if getattr(settings, name)]
        named += given
        needed = (asked, beside, "role_rules") if given else ()
        for name in needed:
            if not getattr(settings, name):
                rule = f"is needed beside {loaded.name_of(given[0])}"
                yield Violation(field=loaded.options.options[name].flag, rule=rule)
    if settings.role_rules and not named:
        rule = f"is needed beside {loaded.name_of('role_rules')}"
        flags = (loaded.options.options[name].flag for name in vouchers)
        yield Violation(field=" or ".join(flags), rule=rule)
    for name in ("oidc_jwks" if settings.oidc_jwks else "oidc_issuer", "token_review"):
        url = getattr(settings, name)
        if url.startswith("http://") and not is_secure_url(url):
            yield Violation(field=loaded.name_of(name), rule="must be https, or on this machine")
    if settings.client_listen and settings.insecure:
        rule = "needs TLS: give --tls-cert, --tls-key and --tls-ca"
        yield Violation(field=loaded.name_of("client_listen"), rule=rule)
    elif settings.client_ca and settings.client_ca == settings.tls_ca:
        rule = "must be another one than --tls-ca, which vouches for servers"
        yield Violation(field=loaded.name_of("client_ca"), rule=rule)
