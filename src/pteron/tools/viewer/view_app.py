"""The web application around a `Viewer`: the files of the page, and its questions as JSON."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from pteron._util import assets
from pteron.errors import PteronError
from pteron.tools.viewer.viewer import Question, Viewer

KINDS_OF_FILE = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# The page runs only its own scripts, and talks only to this server.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# A web page elsewhere can make a browser send other types to this server without asking it first.
QUESTION_TYPE, ARRAY_TYPE = "application/json", "application/octet-stream"
LARGEST_ARRAY_NBYTES = 1 << 30
LOCAL_NAMES = ["localhost", "127.0.0.1", "[::1]"]


def view_app(viewer: Viewer, hosts: list[str] | None = None) -> Starlette:
    """hosts: the accepted Host headers. Default: the names of this machine for itself."""
    page = files(__package__) / "page"
    shown = {"dagre.js": assets.find("dagre.js").read_bytes()}
    shown |= {item.name: item.read_bytes() for item in page.iterdir() if item.is_file()}
    routes = [
        Route("/", partial(_file, shown["index.html"], "text/html")),
        *(Route(f"/{name}", partial(_file, data, _kind(name))) for name, data in shown.items()),
        Mount(
            "/api",
            routes=[
                Route("/inputs/{file:int}", partial(_take_back, viewer), methods=["DELETE"]),
                Route("/inputs/{file:int}/{name}", partial(_give, viewer), methods=["PUT"]),
                *(
                    Route(f"/{name}", partial(_answer, answer), methods=["POST"])
                    for name, answer in viewer.answers.items()
                ),
            ],
        ),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts or LOCAL_NAMES)],
        exception_handlers={PteronError: _refuse},
    )


def _kind(name: str) -> str:
    return KINDS_OF_FILE[name[name.rindex(".") :]]


async def _file(content: bytes, kind: str, http: Request) -> Response:
    return Response(content, media_type=kind, headers=HEADERS)


async def _answer(answer: Any, http: Request) -> Response:
    if http.headers.get("content-type") != QUESTION_TYPE:
        return _error(415, f"expected the content type {QUESTION_TYPE}")
    try:
        body = await http.json()
    except ValueError:
        return _error(400, "the body is not JSON")
    return JSONResponse(await run_in_threadpool(lambda: answer(Question.of(body))))


async def _give(viewer: Viewer, http: Request) -> Response:
    if http.headers.get("content-type") != ARRAY_TYPE:
        return _error(415, f"expected the content type {ARRAY_TYPE}")
    if int(http.headers.get("content-length", LARGEST_ARRAY_NBYTES + 1)) > LARGEST_ARRAY_NBYTES:
        return _error(413, f"the file has more than {LARGEST_ARRAY_NBYTES >> 20} MiB")
    given = http.path_params
    return JSONResponse(await run_in_threadpool(viewer.give, given["file"], given["name"], await http.body()))


async def _take_back(viewer: Viewer, http: Request) -> Response:
    viewer.take_back(http.path_params["file"])
    return JSONResponse({})


async def _refuse(http: Request, error: Exception) -> Response:
    return _error(400, str(error))


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
