"""A real browser under test: Chromium without a window, driven over the protocol of WebDriver.

It has a folder of its own, speaks with no host but this one, and waits for conditions, each up to a bound.
"""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.waiting import BOUND_S, wait_for

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER: Final = shutil.which("chromedriver")
MISSING: Final = "no Chromium here: Debian has the packages chromium and chromium-driver"

NETWORK_CHANGED: Final = "net::ERR_NETWORK_CHANGED"
NOT_FETCHED: Final = "Failed to fetch"
"""What the page says of it."""
LOADS: Final = 10
"""How often a page is loaded, at most, until nothing disturbs it."""

_STARTED: Final = re.compile(r"started successfully on port (\d+)")
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"
"""What WebDriver calls a reference to an element."""
_ARGUMENTS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Browser:
    """One window; use it as a context. Elements are named by CSS selectors, those with a text by `text`."""

    def __init__(self, width: int = 1280, height: int = 800, trusted: Path | None = None) -> None:
        """`trusted`: the file (PEM) of a certificate that is as good as one of a known authority, and no other is."""
        self._size = width, height
        self._trusted = [] if trusted is None else [f"--ignore-certificate-errors-spki-list={_key_of(trusted)}"]
        self._folder = tempfile.TemporaryDirectory(prefix="mayfly-browser-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name, "driver.log")
        self._driver: subprocess.Popen[bytes] | None = None
        self._session = ""
        self._faults: list[str] = []
        """What was told while pages were loaded."""

    def __enter__(self) -> Self:
        assert CHROMIUM is not None and DRIVER is not None, MISSING
        with self._log.open("wb") as log:
            self._driver = subprocess.Popen([DRIVER, "--port=0"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for(lambda: _STARTED.search(self._log.read_text()), "the browser's driver")
        found = _STARTED.search(self._log.read_text())
        assert found is not None
        self._session = f"http://127.0.0.1:{found[1]}/session"
        profile = f"--user-data-dir={self._folder.name}/profile"
        size = f"--window-size={self._size[0]},{self._size[1]}"
        options = {"binary": CHROMIUM, "args": [*_ARGUMENTS, *self._trusted, profile, size]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            made = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._end()
            raise
        self._session += f"/{made['sessionId']}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._end()

    def open(self, address: str) -> None:
        """Go there; what has that address but for a part behind # is loaded anew, and once more if meanwhile another
        test has changed the machine's network interfaces, for which the browser gives up what it loads."""
        for _ in range(LOADS):
            self._ask("POST", "/url", {"url": "about:blank"})
            self._ask("POST", "/url", {"url": address})
            faults = self._told()
            if not any(NETWORK_CHANGED in fault for fault in faults):
                self._faults += faults
                return
        raise AssertionError(f"{address} could not be loaded in {LOADS} goes: {faults}")

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function with that body returns in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": arguments})

    def chrome(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def text(self, selector: str = "body") -> str:
        """What a reader sees there; nothing if it is not there."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        """The same of each such element that is to be seen."""
        script = """
            const all = [...document.querySelectorAll(arguments[0])].filter((it) => it.checkVisibility());
            return all.map((it) => it.innerText);
        """
        return [str(text) for text in self.run(script, selector)]

    def has(self, text: str, selector: str = "body") -> bool:
        """Whether that is to be read in one of those."""
        return any(text in each for each in self.texts(selector))

    def wait(self, text: str, selector: str = "body") -> None:
        """Until it is to be read there."""
        self._until(lambda: self.has(text, selector), f"'{text}' at {selector}")

    def wait_without(self, text: str, selector: str = "body") -> None:
        """Until it is no longer to be read there."""
        self._until(lambda: not self.has(text, selector), f"no '{text}' at {selector}")

    def wait_for(self, selector: str) -> None:
        """Until there is such an element."""
        self._until(lambda: self.run("return !!document.querySelector(arguments[0])", selector), selector)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the element, of several the first with that text, as a mouse does."""
        self._until(lambda: self._find(selector, text) is not None, f"{selector} with '{text}'")
        self._ask("POST", f"/element/{self._find(selector, text)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Put that in a field in place of what is there, as a keyboard does."""
        self._until(lambda: self._find(selector, "") is not None, selector)
        element = self._find(selector, "")
        self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def resize(self, width: int, height: int) -> None:
        """As if the screen were so large."""
        self.chrome(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def faults(self) -> list[str]:
        """What the page has complained about since it was asked last, but for answers that refuse something, and for
        what could not be asked while another test has changed the machine's network interfaces."""
        faults, self._faults = self._faults + self._told(), []
        if any(NETWORK_CHANGED in fault for fault in faults):
            faults = [fault for fault in faults if NETWORK_CHANGED not in fault and NOT_FETCHED not in fault]
        return faults

    def _told(self) -> list[str]:
        told = self._ask("POST", "/se/log", {"type": "browser"})
        return [each["message"] for each in told if "the server responded with a status of" not in each["message"]]

    def picture(self, path: Path) -> None:
        """A PNG of what is to be seen."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def _find(self, selector: str, text: str) -> str | None:
        script = """
            const all = [...document.querySelectorAll(arguments[0])].filter((it) => it.checkVisibility());
            return all.find((it) => it.innerText.trim() === arguments[1]) ??
                all.find((it) => it.innerText.includes(arguments[1])) ?? null;
        """
        found = self.run(script, selector, text)
        return None if found is None else str(found[_ELEMENT])

    def _until(self, condition: Any, description: str) -> None:
        try:
            wait_for(condition, description, BOUND_S, 0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}; the page says: {self.text()[:2000]} {self.faults()}") from None

    def _ask(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = Request(self._session + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=BOUND_S) as response:
                return json.load(response)["value"]
        except HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read()[:1000].decode()}") from None

    def _end(self) -> None:
        assert self._driver is not None
        self._driver.terminate()
        try:
            self._driver.wait(10)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        # The browser writes its profile for a moment after its driver has ended.
        wait_for(self._is_removed, "the end of the browser's profile", every_s=0.1)
        self._folder.cleanup()

    def _is_removed(self) -> bool:
        shutil.rmtree(self._folder.name, ignore_errors=True)
        return not Path(self._folder.name).exists()


def _key_of(certificate: Path) -> str:
    """The SHA-256 of its public key, in base64."""
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    octets = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(octets).digest()).decode()
