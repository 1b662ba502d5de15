"""Values as the page shows them: escaped, made visible, in units that people read.

Must not know any view. Every value that a template writes goes through ``shown``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

from federation.model.placement import binding_key
from federation.model.printable import printable, printable_lines
from federation.model.readable import age, amount, counted
from federation.model.resources import CPU

__all__ = [
    "ago",
    "binding_link",
    "cluster_link",
    "counted",
    "decision_link",
    "gang_link",
    "lines",
    "measured",
    "moment_text",
    "name",
    "part",
    "percent",
    "shown",
    "signed",
    "told",
]


def shown(value: object) -> Markup:
    """A value as HTML: what acts on a page is escaped, and what cannot be seen is spelled out."""
    return value if isinstance(value, Markup) else escape(printable(str(value)))


def name(text: str) -> Markup:
    """What others named, kept from changing the direction of what is around it."""
    return Markup("<bdi>{}</bdi>").format(printable(text))


def lines(text: str) -> Markup:
    """A text of several lines; browsers send them with a carriage return each."""
    return escape(printable_lines(text.replace("\r\n", "\n")))


def part(text: str) -> Markup:
    """As one part of an address: every character that means something there is encoded."""
    return Markup(quote(text, safe=""))  # noqa: S704 - nothing is left in it but letters and %


def ago(seconds: float | None, now: float) -> Markup:
    """How long ago it was, with the time itself for who asks for it; Unix seconds."""
    if seconds is None:
        return Markup("never")
    span = f"{age(now - seconds)} ago" if now >= seconds else f"in {age(seconds - now)}"
    if abs(now - seconds) < 1:
        span = "now"
    moment = moment_text(seconds)
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(moment, span)


def told(value: object, more: str) -> Markup:
    """A number that says more to who points at it, or comes to it by keyboard."""
    told_more = printable_lines(more)
    return Markup('<span class="told" tabindex="0" title="{}">{}</span>').format(told_more, value)


def moment_text(seconds: float) -> str:
    """In UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def measured(resource: str, base_units: int) -> str:
    """An amount with its unit: ``1.5 cores``, ``32Gi``, ``7,000``."""
    if resource == CPU:
        cores = max(0, base_units) / 1000
        # Of many cores nobody reads thousandths.
        number = f"{cores:,.0f}" if cores >= 100 else f"{cores:.{3 if cores >= 10 else 12}g}"
        return f"{number} {'core' if cores == 1 else 'cores'}"
    text = amount(resource, base_units)
    return f"{int(text):,}" if text.isdecimal() else text


def signed(change: float, spec: str = "") -> str:
    """What became more, or less with a true minus: ``+1,200``, ``same``."""
    return f"{change:+,{spec}}".replace("-", "\N{MINUS SIGN}") if change else "same"


def percent(share: float) -> str:
    """``43 %``; what is more than nothing is never called 0."""
    if 0 < share < 0.01:
        return "< 1 %"
    return f"{100 * share:.0f} %"


def cluster_link(cluster: str) -> Markup:
    """A cluster by its name, leading to what is known of it."""
    return Markup('<a href="/ui/cluster?name={}">{}</a>').format(part(cluster), name(cluster))


def binding_link(namespace: str, binding: str) -> Markup:
    """A binding by its namespace and name, leading to it."""
    return Markup('<a href="/ui/binding?namespace={}&amp;name={}">{}</a>').format(
        part(namespace), part(binding), name(binding_key(namespace, binding))
    )


def decision_link(decision: str, text: str) -> Markup:
    """A word that leads to a decision."""
    return Markup('<a href="/ui/decision?id={}">{}</a>').format(part(decision), text)


def gang_link(namespace: str, gang: str) -> Markup:
    """A gang by its namespace and name, leading to its members."""
    return Markup('<a href="/ui/gang?namespace={}&amp;name={}">{}</a>').format(
        part(namespace), part(gang), name(binding_key(namespace, gang))
    )
