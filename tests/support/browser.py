"""A headless Chromium with WebGPU on the CPU, pages in it, and a static web server for them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.missing import missing

# Chromium's software adapter, SwiftShader, needs the flags in the middle.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-dev-shm-usage",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 300_000  # milliseconds: the software adapter compiles and computes slowly


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        missing("the tests of pages need Chromium, and no program `chromium` was found")
    if complaint := complaint_of_playwright():
        missing(f"the tests of pages need playwright, which does not start: {complaint}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@cache
def complaint_of_playwright() -> str | None:
    """What its program says if it does not start. On Debian, it needs the package libatomic1."""
    tried = subprocess.run([sys.executable, "-m", "playwright", "--version"], capture_output=True, text=True)
    return tried.stderr.strip()[-300:] or "no reason given" if tried.returncode else None


# What Chromium itself writes on the console when a request is refused, and when there is no server any more.
REFUSED, UNREACHABLE = "the server responded with a status of", "net::ERR_CONNECTION_REFUSED"


@contextmanager
def opened(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """A page in a context of its own. An error on its console fails the test."""
    context = browser.new_context(**{"reduced_motion": "reduce", **options})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.goto(url)
    yield page
    context.close()
    assert [error for error in errors if REFUSED not in error and UNREACHABLE not in error] == []


class _Files(SimpleHTTPRequestHandler):
    """Files of a folder. It answers requests for a range of bytes, unless the URL ends with `?whole`."""

    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def send_head(self) -> Any:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if wanted is None or not path.is_file() or self.path.endswith("?whole"):
            return super().send_head()
        content = path.read_bytes()
        first = int(wanted[1])
        last = min(int(wanted[2] or len(content)), len(content) - 1)
        if first > last:
            self.send_error(416)
            return None
        self.send_response(206)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        return BytesIO(content[first : last + 1])


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a web server with the files of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
