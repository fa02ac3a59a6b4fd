"""The pieces of answers on their way from the scheduler to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pteron.llm import Piece
from pteron.llm.answer import Answer
from pteron.server.catalog import Lease
from pteron.server.refusals import CLIENT_LEFT
from pteron.server.request_log import current_record
from pteron.server.scheduler import Job, Task


class Pieces:
    """The pieces of all tasks that the scheduler does for one request, for the event loop."""

    def __init__(self, lease: Lease, tasks: Sequence[Task]) -> None:
        """The lease is released by `end`."""
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[tuple[int, Piece | Exception]] = asyncio.Queue()
        self._lease = lease
        self._scheduler = lease.served.scheduler
        self._record = current_record()
        self._record.model = lease.served.name
        self._jobs: list[Job] = []
        self._unfinished = 0
        try:
            for index, task in enumerate(tasks):
                self._jobs.append(self._scheduler.submit(task, partial(self._deliver, index)))
            self._unfinished = len(self._jobs)
        except BaseException:  # there is no room for all of them
            self.end()
            raise

    def __len__(self) -> int:
        """The number of answers."""
        return len(self._jobs)

    def _deliver(self, index: int, item: Piece | Exception) -> None:
        """Called by the scheduler's thread."""
        self._loop.call_soon_threadsafe(self._arrived.put_nowait, (index, item))

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        """Each piece with the number of its answer."""
        while self._unfinished:
            index, item = await self._arrived.get()
            if isinstance(item, Exception):
                self._unfinished = 0
                self._record.finish_reasons.append("error")
                raise item
            self._record.add(item)
            if item.finish_reason:
                self._unfinished -= 1
            yield index, item

    def end(self) -> None:
        """Cancel what is not finished: the client has left. The request needs its model no more."""
        for job in self._jobs:
            if self._unfinished and isinstance(job.task, Answer):
                self._record.add_prompt(job.task.stats)
            self._scheduler.cancel(job)
        self._record.finish_reasons += ["cancelled"] * self._unfinished
        self._unfinished = 0
        self._lease.release()


class EventStream(StreamingResponse):
    """Server-sent events. When the response ends, or the client leaves, the answer is cancelled."""

    def __init__(self, pieces: Pieces, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pieces.end()


async def whole(http: HttpRequest, pieces: Pieces, response: Coroutine[Any, Any, Response]) -> Response:
    """The response, once it is complete. If the client leaves before, the pieces are cancelled."""
    answer = asyncio.create_task(response)
    left = asyncio.create_task(_client_leaves(http))
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else Response(status_code=CLIENT_LEFT)
    finally:
        answer.cancel()
        left.cancel()
        pieces.end()


async def _client_leaves(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
