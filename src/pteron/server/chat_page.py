"""The chat page at `/`. Its files load nothing from elsewhere."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pteron._util import pages

PATHS = ("/", *(f"/{name}" for name in (*pages.CHAT, "main.js")))
KINDS = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
# The page runs only its own script, and talks only to this server. No text can become a script.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    return [Route(path, partial(_file, *_content(path.removeprefix("/") or "chat.html"))) for path in PATHS]


def _content(name: str) -> tuple[bytes, str]:
    """A file of the page, and its type. Only `main.js` belongs to the server alone."""
    own = files(__package__) / "page" / name
    return own.read_bytes() if own.is_file() else pages.read(name), KINDS[Path(name).suffix]


async def _file(content: bytes, kind: str, http: Request) -> Response:
    return Response(content, media_type=kind, headers=HEADERS)
