"""An OpenAI-compatible server for language models and embedders, in the extra `server`."""

from __future__ import annotations

from pteron._util.extras import needs

with needs("server", "to serve a model"):
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401

from pteron.server.app import create_app, make_server, serve
from pteron.server.catalog import ModelFile
from pteron.server.gate import LOOPBACK
from pteron.server.limits import Limits
from pteron.server.scheduler import QueueFull, Scheduler, SchedulerClosed

__all__ = [
    "LOOPBACK",
    "Limits",
    "ModelFile",
    "QueueFull",
    "Scheduler",
    "SchedulerClosed",
    "create_app",
    "make_server",
    "serve",
]
