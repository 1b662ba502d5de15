"""The pictures in docs/pictures: views of a running demo, as a browser draws them.

    make demo                                        # and, while it runs:
    FEDERATION_CHROMIUM=... .venv/bin/python -m tests.browsers.pictures 127.0.0.1:7080

Must not make up anything: what is drawn is what the demo has decided.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from lab.browser import Tab, chromium

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
BINDING = "/ui/binding?namespace=shop&name=checkout-deployment"
# By file: the view, how high its picture is, and whether it is dark.
VIEWS = {
    "fleet": ("/ui/", 860, False),
    "cluster": ("/ui/cluster?name=member2", 1240, True),
}
WIDTH, DECISION_HEIGHT = 1100, 700
FIRST_DECISION = "[...document.querySelectorAll(\"a[href^='/ui/decision']\")].at(-1).href"


async def drawn(tab: Tab, url: str, name: str, *, height: int, dark: bool) -> None:
    await tab.look(width=WIDTH, height=height, dark=dark)
    await tab.open(url)
    await tab.picture(FOLDER / f"{name}.png")


async def main(web: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    async with chromium() as browser, browser.tab() as tab:
        for name, (path, height, dark) in VIEWS.items():
            await drawn(tab, f"http://{web}{path}", name, height=height, dark=dark)
        await tab.open(f"http://{web}{BINDING}")
        decision = await tab.value(FIRST_DECISION)
        await drawn(tab, decision, "decision", height=DECISION_HEIGHT, dark=False)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
