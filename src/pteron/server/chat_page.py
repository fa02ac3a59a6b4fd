"""The chat page at `/`: three files and an icon, which load nothing from elsewhere."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = {
    "/": ("index.html", "text/html"),
    "/chat.js": ("chat.js", "text/javascript"),
    "/chat.css": ("chat.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
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
    folder = files(__package__) / "page"
    return [
        Route(path, partial(_file, (folder / name).read_bytes(), kind))
        for path, (name, kind) in FILES.items()
    ]


async def _file(content: bytes, kind: str, http: Request) -> Response:
    return Response(content, media_type=kind, headers=HEADERS)
