"""A real browser without a screen: Chromium, driven by its own protocol.

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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from lab.patience import PATIENCE_SECONDS, until

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
