"""Serves the page on this machine only."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from pteron.errors import PteronError
from pteron.tools.viewer.view_app import view_app
from pteron.tools.viewer.viewer import Viewer

HOST = "127.0.0.1"


class PageServer(uvicorn.Server):
    """Calls a function when the page can be opened."""

    def __init__(self, viewer: Viewer, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(view_app(viewer), log_level="warning", ws="none", timeout_graceful_shutdown=1)
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def serve_page(viewer: Viewer, port: int, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted. `ready` gets the address of the page."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise PteronError(
                f"port {port} is in use ({error.strerror}): choose another with --port"
            ) from None
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        PageServer(viewer, lambda: ready(address)).run(sockets=[listening])
