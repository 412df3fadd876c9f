"""A real browser for tests: headless Chromium, driven through its DevTools protocol.

Nothing is installed for it but the browser of the system's packages; the WebSocket is tornado's, which Dask's
distributed brings. Commands are sent one by one and answered before the next; events that arrive meanwhile are kept.
"""

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_SECONDS = 60


@dataclass
class Tab:
    """A page in the browser.

    Attributes
    ----------
    events : (method, parameters) of everything that the browser told
    """

    loop: asyncio.AbstractEventLoop
    socket: WebSocketClientConnection
    session: str = ""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _sent: int = 0

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        return self.loop.run_until_complete(asyncio.wait_for(self._send(method, parameters), _SECONDS))

    async def _send(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._sent += 1
        session = {"sessionId": self.session} if self.session else {}
        await self.socket.write_message(
            json.dumps({"id": self._sent, "method": method, "params": parameters} | session)
        )
        while True:
            message = json.loads(await self.socket.read_message() or "{}")
            if message.get("id") == self._sent:
                assert "error" not in message, message["error"]
                return dict(message["result"])
            self.events.append((message.get("method", ""), message.get("params", {})))

    def run(self, script: str) -> Any:
        """The value of a script; promises are waited for."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, path: Path, width: int = 1400, *, dark: bool = False, script: bool = True) -> None:
        """Open a file at a width, for readers who prefer light or dark pages, with or without script."""
        self.events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.send("Page.navigate", url=path.as_uri())
        while not any(name == "Page.loadEventFired" for name, _ in self.events):
            self.send("Page.getLayoutMetrics")

    def requests(self) -> list[str]:
        """The URLs that were asked for since the page was opened."""
        return [said["request"]["url"] for name, said in self.events if name == "Network.requestWillBeSent"]

    def troubles(self) -> list[str]:
        """Dialogs, exceptions and errors on the console since the page was opened."""
        kinds = ("Page.javascriptDialogOpening", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(said)[:500] for name, said in self.events if name in kinds]

    def picture(self, path: Path) -> None:
        """Write a PNG of the page's first screens; to paint the whole of a long page takes a second."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 3_000), "scale": 1}
        shot = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """The page as a PDF on A4."""
        self.send("Emulation.setEmulatedMedia", media="print", features=[])
        made = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(made["data"])


@contextmanager
def chromium() -> Iterator[Tab]:
    """A tab in a new browser, which closes with it."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="streameval-browser-", ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-extensions",
                   f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        loop = asyncio.new_event_loop()
        try:
            yield loop.run_until_complete(_tab(loop, _address(Path(profile, "DevToolsActivePort"), process)))
        finally:
            process.terminate()
            process.wait(_SECONDS)
            loop.close()


def _address(told: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the browser listens, which it writes to a file of its profile."""
    until = time.monotonic() + _SECONDS
    while not (told.exists() and len(found := told.read_text().split()) == 2):
        assert process.poll() is None, f"{CHROMIUM} ended with status {process.poll()}"
        assert time.monotonic() < until, f"{CHROMIUM} did not start within {_SECONDS} s"
        time.sleep(0.05)
    return f"ws://127.0.0.1:{found[0]}{found[1]}"


async def _tab(loop: asyncio.AbstractEventLoop, address: str) -> Tab:
    """The first tab, with the events of pages, network and console."""
    socket = await websocket_connect(address, max_message_size=1 << 30)
    tab = Tab(loop, socket)
    targets = (await tab._send("Target.getTargets", {}))["targetInfos"]
    page = next(target["targetId"] for target in targets if target["type"] == "page")
    attached = await tab._send("Target.attachToTarget", {"targetId": page, "flatten": True})
    tab.session = attached["sessionId"]
    for domain in ("Page", "Network", "Runtime", "Log"):
        await tab._send(f"{domain}.enable", {})
    return tab
