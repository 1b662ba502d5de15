"""A browser without a screen: asks for pages, keeps cookies, and knows what a page is made of.

Must not know the pages: it reads HTML as a browser would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from http.cookies import Morsel, SimpleCookie
from urllib.parse import urlencode, urljoin

from federation.runtime.addresses import Address
from lab.patience import PATIENCE_SECONDS

# What may begin a tag and never ends one.
VOID = frozenset({"meta", "link", "img", "input", "br", "rect"})


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


class Document(HTMLParser):
    """The elements of a page in order, each with the text that is directly in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert self._open == [], [each.tag for each in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        assert len(element.attributes) == len(attrs), attrs
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1].tag != tag:
            # Only these may be left open.
            assert self._open.pop().tag in {"p", "li", "dt", "dd"}
        assert self._open, f"</{tag}> ends nothing"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].text += data

    def all(self, tag: str) -> list[Element]:
        return [each for each in self.elements if each.tag == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(each.text.split()) for each in self.elements if each.text.strip())

    def field(self, name: str) -> str:
        """The value of a field of a form."""
        (value, *_) = (
            each.attributes.get("value", "")
            for each in self.all("input")
            if each.attributes.get("name") == name
        )
        return value

    def links(self, base: str) -> set[str]:
        return {
            urljoin(base, each.attributes["href"]).partition("#")[0]
            for each in self.all("a")
            if "href" in each.attributes
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: str
    cookies: tuple[Morsel[str], ...]

    @property
    def document(self) -> Document:
        return Document(self.body)


@dataclass(slots=True, kw_only=True)
class Browser:
    """``headers`` go with every request; cookies are kept and sent back."""

    address: Address
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> Answered:
        return await asyncio.to_thread(self._ask, "GET", path, None, headers)

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answered:
        return await asyncio.to_thread(self._ask, "POST", path, urlencode(fields), headers)

    def _ask(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> Answered:
        connection = HTTPConnection(self.address.host, self.address.port, timeout=PATIENCE_SECONDS)
        sent = {**self.headers, **{key.replace("_", "-"): text for key, text in headers.items()}}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        if body is not None:
            sent["content-type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        given = [
            each
            for header in answer.headers.get_all("set-cookie", [])
            for each in SimpleCookie(header).values()
        ]
        self.cookies |= {each.key: each.value for each in given}
        return Answered(
            status=answer.status,
            headers={key.lower(): value for key, value in answer.headers.items()},
            body=text,
            cookies=tuple(given),
        )
