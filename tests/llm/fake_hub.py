"""A Hugging Face Hub on this machine: the few requests that a download makes, answered from a folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Handler(BaseHTTPRequestHandler):
    root: Path
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._api(self.root / parts[2] / parts[3], parts[4:5])
        elif "resolve" in parts:
            at = parts.index("resolve")
            self._file(self.root.joinpath(*parts[:at]) / "/".join(parts[at + 2 :]))
        else:
            self._send(404, b"{}")

    def _api(self, repository: Path, what: list[str]) -> None:
        if not repository.is_dir():
            self._send(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            return
        files = [path for path in sorted(repository.rglob("*")) if path.is_file()]
        names = [path.relative_to(repository).as_posix() for path in files]
        tree = [
            {"type": "file", "path": name, "size": path.stat().st_size, "oid": COMMIT}
            for name, path in zip(names, files, strict=True)
        ]
        model = {
            "id": f"{repository.parent.name}/{repository.name}",
            "sha": COMMIT,
            "siblings": [{"rfilename": name} for name in names],
        }
        self._send(200, json.dumps(tree if what == ["tree"] else model).encode())

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        data = path.read_bytes()
        tag = hashlib.sha256(data).hexdigest()
        self._send(200, data, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def fake_hub(root: Path) -> Iterator[str]:
    """Serve the repositories `root/org/repo`; the address."""
    handler = type("Handler", (_Handler,), {"root": root})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
