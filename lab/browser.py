"""Browsers without a screen: one that reads HTML by itself, and Chromium by its own protocol.

Must not know the pages. ``FEDERATION_CHROMIUM`` names the program, or the PATH has it; without one
nothing runs.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urljoin

import aiohttp

from federation.runtime.addresses import Address
from lab.patience import PATIENCE_SECONDS, until

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


CHROMIUM: Final = os.environ.get("FEDERATION_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
# axe.min.js of the package axe-core, which is not in this repository.
AXE: Final = os.environ.get("FEDERATION_AXE", "")
# Root may not have the sandbox, and containers have little shared memory.
ARGUMENTS: Final = (
    *("--headless=new", "--remote-debugging-port=0", "--no-sandbox", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server"),
)
MOST_MESSAGE_BYTES: Final = 256 * 2**20


class Tab:
    """One page of the browser; ``troubles`` are its console's errors and uncaught exceptions."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self._loaded = asyncio.Event()

    async def send(self, method: str, **parameters: Any) -> Any:
        return await self._browser.send(method, session=self._session, **parameters)

    def hear(self, method: str, said: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.troubles.append(json.dumps(said["exceptionDetails"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.troubles.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    async def open(self, address: str) -> None:
        """Waits until it is loaded."""
        self._loaded.clear()
        answer = await self.send("Page.navigate", url=address)
        assert "errorText" not in answer, (address, answer)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._loaded.wait()

    async def value(self, expression: str) -> Any:
        """Of an expression in the page, awaited where it is a promise."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, (expression[:200], answer["exceptionDetails"])
        return answer["result"].get("value")

    async def look(self, *, width: int, dark: bool = False, height: int = 900) -> None:
        """As on a screen so wide."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def block_scripts(self) -> None:
        await self.send("Emulation.setScriptExecutionDisabled", value=True)

    async def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        named = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key.upper()[0]))}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **named, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    async def picture(self, path: Path) -> None:
        """Of what is seen of the page."""
        answer = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))


class Chromium:
    """A running browser; made by ``chromium``."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._sent = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tabs: dict[str, Tab] = {}

    async def send(self, method: str, *, session: str = "", **parameters: Any) -> Any:
        self._sent += 1
        number, answer = self._sent, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        await self._socket.send_json(message)
        async with asyncio.timeout(PATIENCE_SECONDS):
            said = await answer
        assert "error" not in said, (method, said["error"])
        return said["result"]

    async def listen(self) -> None:
        """Until the browser ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
            elif tab := self._tabs.get(said.get("sessionId", "")):
                tab.hear(said["method"], said["params"])

    @asynccontextmanager
    async def tab(self, *, apart: bool = False) -> AsyncIterator[Tab]:
        """A new page; ``apart`` with cookies of its own."""
        context = {}
        if apart:
            context = await self.send("Target.createBrowserContext")
        target = await self.send("Target.createTarget", url="about:blank", **context)
        attached = await self.send("Target.attachToTarget", flatten=True, **target)
        tab = Tab(self, attached["sessionId"])
        self._tabs[attached["sessionId"]] = tab
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.send(f"{domain}.enable")
        yield tab
        await self.send("Target.closeTarget", **target)


@asynccontextmanager
async def chromium() -> AsyncIterator[Chromium]:
    with tempfile.TemporaryDirectory(
        prefix="fedsched-chromium-", ignore_cleanup_errors=True
    ) as folder:
        program = await asyncio.create_subprocess_exec(
            *(CHROMIUM, *ARGUMENTS, f"--user-data-dir={folder}", "about:blank"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port_file = Path(folder) / "DevToolsActivePort"

            async def written() -> list[str]:
                await asyncio.sleep(0.05)
                return port_file.read_text(encoding="ascii").split() if port_file.exists() else []

            port, path = await until(written, lambda words: len(words) == 2)
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(
                    f"ws://127.0.0.1:{port}{path}", max_msg_size=MOST_MESSAGE_BYTES
                ) as socket,
            ):
                browser = Chromium(socket)
                listening = asyncio.create_task(browser.listen())
                try:
                    yield browser
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        finally:
            program.kill()
            await program.wait()
