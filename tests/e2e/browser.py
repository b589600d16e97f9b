"""Controls headless Chromium with its DevTools protocol over a pipe, without a port."""

import base64
import json
import os
import select
import subprocess
import time
from waiting import PATIENCE_S

DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
# The methods of events that report an error on the page.
FAULTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")


class Browser:
    """One browser tab. `errors` holds the errors of the page that is shown."""

    def __init__(self, profile):
        """Requires that `profile` is an empty folder."""
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4; its sandbox does not work for root.
        command = f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._received = b""
        self._calls = 0
        self._session = None
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(timeout=PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._out)
            os.close(self._in)

    def call(self, method, **params):
        """Sends a protocol command and returns its result."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._calls:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self):
        give_up = time.monotonic() + PATIENCE_S
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._in], [], [], max(0, give_up - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has ended"
            self._received += piece
        message, self._received = self._received.split(b"\0", 1)
        event = json.loads(message)
        if event.get("method") in FAULTS:
            self._judge(event["method"], event["params"])
        return event

    def _judge(self, method, params):
        level = params.get("type") or params.get("entry", {}).get("level")
        if method == "Runtime.exceptionThrown" or level in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params))

    def show(self, url, device, dark=False):
        """Loads a page on the screen of `device`."""
        self.call("Emulation.setDeviceMetricsOverride", **device)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self._go("about:blank")  # Ends events of the previous page.
        self.errors.clear()
        self._go(url)

    def _go(self, url):
        failure = self.call("Page.navigate", url=url).get("errorText")
        assert not failure, f"{url}: {failure}"
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def value(self, expression):
        """Returns the value of a JavaScript expression. A promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition):
        """Waits until `condition` holds on the page."""
        give_up = time.monotonic() + PATIENCE_S
        while not self.value(condition):
            assert time.monotonic() < give_up, f"this condition never held: {condition}"
            self.value("new Promise(done => setTimeout(done, 20))")

    def overflow(self):
        """Returns by how many pixels the page is wider than the screen."""
        return self.value(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def screenshot(self, path):
        """Writes a PNG of the whole page."""
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(image["data"]))
