"""A headless Chromium, driven by chromedriver over WebDriver's HTTP. No more of it than the report's tests need."""
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request

CHROMIUM = shutil.which("chromium")
CHROMEDRIVER = shutil.which("chromedriver")
# A fresh profile, and nothing that looks for a network.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
TIMEOUT_SECONDS = 40
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window. Use as a context: leaving it ends the browser."""

    def __init__(self, width=1280, height=900):
        self.profile = tempfile.mkdtemp()
        self.driver = subprocess.Popen([CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)
        self.url = f"http://127.0.0.1:{self._port()}/session"
        capabilities = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": {
            "binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]}}
        try:
            self.url += "/" + self.send("POST", "", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("DELETE", "")
        finally:
            self.close()

    def close(self):
        self.driver.terminate()
        self.driver.communicate()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _port(self):
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return found[1]
        raise RuntimeError("chromedriver did not start")

    def send(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def open(self, path):
        self.send("POST", "/url", {"url": "file://" + os.path.realpath(path)})

    def run(self, script, *arguments):
        """What the script returns."""
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.send("POST", "/element", {"using": "css selector", "value": selector})

    def click(self, selector):
        self.send("POST", f"/element/{self.find(selector)[ELEMENT]}/click", {})

    def hover(self, selector, x, y):
        """Moves the pointer to (x, y) from the corner of an element, as a person would: first near it."""
        corner = self.run("""const element = document.querySelector(arguments[0]);
            element.scrollIntoView({block: 'center'});
            const {left, top} = element.getBoundingClientRect();
            return [left, top];""", selector)
        moves = [{"type": "pointerMove", "duration": 20, "x": round(corner[0] + x + shift),
                  "y": round(corner[1] + y + shift)} for shift in (3, 0)]
        self.send("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]})

    def console(self):
        """What the page logged since the last call, as texts; a browser's own noise is not in it."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.send("POST", "/se/log", {"type": "browser"})]

    def emulate(self, command, **parameters):
        return self.send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def prefer_dark(self, is_dark):
        self.emulate("Emulation.setEmulatedMedia",
                     features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def resize(self, width, height):
        self.emulate("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2,
                     mobile=width < 600)

    def wait_until(self, script, *arguments):
        """What the script returns, once that is true."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            result = self.run(script, *arguments)
            if result:
                return result
            time.sleep(0.05)
        raise AssertionError(f"still false after 10 s: {script}")

    def screenshot(self, path, whole=False):
        shot = self.emulate("Page.captureScreenshot", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def print_pdf(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("POST", "/print", {"background": True})))
