"""The files for browsers: whole, kept by their tags, and held to what their headers say."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

import mayfly.node.http.browser_page as browser_page
from tests.node.http.served import address_of, http_server
from tests.node.http.some_node import SomeNode

FOLDER = Path(browser_page.__file__).parent / "page"
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*"))
Answer = tuple[int, Mapping[str, str], bytes]
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def ask(path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
    async def run() -> Answer:
        server = http_server(SomeNode())
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:
                address = f"http://{address_of(server)}{path}"
                async with session.request(method, address, headers=headers or {}) as answer:
                    return answer.status, answer.headers, await answer.read()
        finally:
            await server.stop()

    return asyncio.run(run())


def test_browsers_get_the_page_and_tools_the_index() -> None:
    status, headers, body = ask("/", HTML)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"/page/main.js" in body
    assert headers["Vary"] == "Accept"
    for accept in ("*/*", "application/json"):
        status, headers, body = ask("/", {"Accept": accept})
        assert (status, headers["Content-Type"], headers["Vary"]) == (200, "application/json", "Accept")
        assert b"/api/overview" in body


@pytest.mark.parametrize("file", FILES)
def test_every_file_is_served_as_what_it_is_and_kept_by_its_tag(file: str) -> None:
    status, headers, body = ask(f"/page/{file}")
    assert (status, body) == (200, (FOLDER / file).read_bytes())
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
    assert headers["Content-Type"].split(";")[0] == kinds[file.rpartition(".")[2]]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Content-Type-Options"] == "nosniff"
    status, _, body = ask(f"/page/{file}", {"If-None-Match": headers["ETag"]})
    assert (status, body) == (304, b"")
    assert ask(f"/page/{file}", {"If-None-Match": '"older"'})[0] == 200


@pytest.mark.parametrize("path", ["/page/absent.js", "/page/..%2Fserver.py", "/page/parts", "/page/%2Fetc%2Fpasswd"])
def test_nothing_else_is_served(path: str) -> None:
    assert ask(path, HTML)[0] == 404


def test_scripts_and_styles_stand_in_files_of_this_node() -> None:
    """What its policy forbids is not there: no inline script or style, no other host."""
    for file in FILES:
        text = (FOLDER / file).read_text()
        others = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"^ *//.*", "", text, flags=re.MULTILINE)))
        assert others <= {"http://www.w3.org"}, file
        assert not re.search(r"(?:inner|outer)HTML\s*=[^=]|insertAdjacentHTML|document\.write|eval\(", text), file
        if file.endswith(".html"):
            assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", text), file


def test_modules_import_what_is_there() -> None:
    for file in (each for each in FILES if each.endswith(".js")):
        text = (FOLDER / file).read_text()
        for names, path in re.findall(r"^import \{([^}]+)\} from \"([^\"]+)\"", text, re.MULTILINE):
            source = ((FOLDER / file).parent / path).resolve()
            assert source.exists(), f"{file}: {path}"
            for name in (each.strip() for each in names.split(",") if each.strip()):
                exported = rf"^export (?:async )?(?:function|class|const) {name}\b"
                assert re.search(exported, source.read_text(), re.MULTILINE), f"{file}: {name}"
                assert len(re.findall(rf"\b{re.escape(name)}\b", text)) > 1, f"{file} does not use {name}"
