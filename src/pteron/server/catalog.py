"""The models of a server. A model is loaded when it is asked for, and unloaded when its memory is needed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pteron.errors import PteronError
from pteron.llm import Embedder, LanguageModel
from pteron.server.requests import ApiError
from pteron.server.scheduler import Scheduler

log = logging.getLogger("uvicorn.error")

Model: TypeAlias = LanguageModel | Embedder
Wanted = TypeVar("Wanted", LanguageModel, Embedder)
KINDS: Mapping[type[Any], str] = {LanguageModel: "a language model", Embedder: "an embedder"}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model that the server can load.

    Attributes:
        name: Its name in requests.
        open: A function that loads the model. It returns a context manager, which closes the model.
        nbytes: About how much it needs on the GPU. After the first load, the measured size is used.
        keep: The model is loaded at once, and stays loaded.
    """

    name: str
    open: Callable[[], AbstractContextManager[Model]]
    nbytes: int = 0
    keep: bool = False


class ServedModel:
    """A loaded model and its scheduler."""

    def __init__(self, file: ModelFile, schedule: Callable[[str, Model], Scheduler]) -> None:
        self.name = file.name
        self.keep = file.keep
        self.users = 0  # requests that have not been answered completely
        self.preparing = 0  # requests that have a place, but are not yet with the scheduler
        self.last_use = time.monotonic()
        with ExitStack() as opened:
            self.model = opened.enter_context(file.open())
            self.scheduler = schedule(file.name, self.model)
            self._opened = opened.pop_all()

    @property
    def nbytes(self) -> int:
        """What the model holds on the GPU now."""
        return self.model.program.device.allocated_nbytes

    def idle_since(self) -> float | None:
        """None if it may not be unloaded."""
        return None if self.users or self.keep else self.last_use

    def close(self) -> None:
        self.scheduler.close()
        self._opened.close()


class Lease:
    """A loaded model for one request. It stays loaded until `release`."""

    def __init__(self, served: ServedModel, released: asyncio.Event) -> None:
        self.served = served
        self._released = released
        self._is_held = True
        served.users += 1

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self.served.users -= 1
            self.served.last_use = time.monotonic()
            self._released.set()

    def model(self, kind: type[Wanted], path: str) -> Wanted:
        """The model. ApiError if it is of another kind than `path` needs."""
        if isinstance(self.served.model, kind):
            return self.served.model
        is_kind = next(text for known, text in KINDS.items() if isinstance(self.served.model, known))
        raise ApiError(400, f"{self.served.name!r} is {is_kind}: {path} needs {KINDS[kind]}", param="model")


class Catalog:
    """Loads and unloads models. All methods but `drain` and `stop` belong to the event loop."""

    def __init__(
        self,
        files: list[ModelFile],
        schedule: Callable[[str, Model], Scheduler],
        *,
        idle_seconds: float | None = None,
        memory: int | None = None,
    ) -> None:
        """memory: the most bytes on the GPU for all models. It is checked when a model is loaded.

        idle_seconds: a model that was not used for this time is unloaded. None: never.
        """
        self._files = {file.name: file for file in files}
        self._schedule = schedule
        self._idle_seconds = idle_seconds
        self._memory = memory
        self._loaded: dict[str, ServedModel] = {}
        self._known_nbytes: dict[str, int] = {}
        self._changing = asyncio.Lock()  # held to load or unload a model
        self._waits_for_room = False
        self._released = asyncio.Event()
        self._created = int(time.time())
        for file in files:
            if file.keep:
                self._loaded[file.name] = ServedModel(file, schedule)

    @property
    def loaded(self) -> list[ServedModel]:
        return list(self._loaded.values())

    @property
    def only(self) -> ServedModel | None:
        """The only model of the server, if it is loaded."""
        return next(iter(self._loaded.values()), None) if len(self._files) == 1 else None

    @property
    def cards(self) -> list[dict[str, Any]]:
        """The models in OpenAI's format."""
        return [self.card(name) for name in self._files]

    def card(self, name: str) -> dict[str, Any]:
        self.resolve(name)
        return {"id": name, "object": "model", "created": self._created, "owned_by": "pteron"}

    def resolve(self, name: str | None) -> str:
        """The name of a model. A request without a name gets the first model."""
        if name is None:
            return next(iter(self._files))
        if name not in self._files:
            known = f"there is no model {name!r}; this server has: {', '.join(self._files)}"
            raise ApiError(404, known, param="model", code="model_not_found")
        return name

    async def lease(self, name: str | None) -> Lease:
        """A model, which is loaded if necessary."""
        file = self._files[self.resolve(name)]
        served = self._loaded.get(file.name)
        if served is not None and not self._waits_for_room:
            return Lease(served, self._released)
        async with self._changing:
            return Lease(self._loaded.get(file.name) or await self._load(file), self._released)

    async def unload_idle(self) -> None:
        """Unload what was not used for `idle_seconds`."""
        if self._idle_seconds is None:
            return
        now = time.monotonic()
        async with self._changing:
            for served in self.loaded:
                since = served.idle_since()
                if since is not None and now - since >= self._idle_seconds:
                    await self._unload(served)

    def drain(self) -> int:
        """Accept no new work. Returns the number of answers to finish. May be called by a signal handler."""
        for served in self.loaded:
            served.scheduler.drain()
        return sum(served.scheduler.active + served.scheduler.waiting for served in self.loaded)

    def stop(self) -> None:
        """Accept no new work, and end all answers. May be called by a signal handler."""
        for served in self.loaded:
            served.scheduler.stop()

    async def close(self) -> None:
        async with self._changing:
            for served in self.loaded:
                await self._unload(served)

    async def _load(self, file: ModelFile) -> ServedModel:
        await self._make_room(self._known_nbytes.get(file.name, file.nbytes), file.name)
        log.info("loading the model %s", file.name)
        try:
            served = await asyncio.to_thread(ServedModel, file, self._schedule)
        except (PteronError, OSError) as error:
            message = f"the model {file.name!r} could not be loaded: {error}"
            raise ApiError(500, message, code="model_load_failed") from error
        self._loaded[file.name] = served
        self._known_nbytes[file.name] = served.nbytes
        try:
            await self._make_room(0, file.name)
        except BaseException:
            await self._unload(served)
            raise
        return served

    async def _make_room(self, more: int, name: str) -> None:
        """Unload idle models, the least recently used first, until there is room for `more` bytes of a model.

        If the others are in use, wait for them. New requests wait too, so that they become idle.
        """
        if self._memory is None:
            return
        needed = more + (self._loaded[name].nbytes if name in self._loaded else 0)
        if needed > self._memory:
            sizes = f"{needed >> 20} MiB, but all models together may use {self._memory >> 20} MiB"
            message = f"the model {name!r} cannot be loaded: it needs {sizes}"
            raise ApiError(500, message, code="model_load_failed")
        self._waits_for_room = True
        try:
            while sum(served.nbytes for served in self.loaded) + more > self._memory:
                others = [served for served in self.loaded if served.name != name]
                idle = [served for served in others if served.idle_since() is not None]
                if idle:
                    await self._unload(min(idle, key=lambda served: served.last_use))
                elif all(served.keep for served in others):
                    raise ApiError(500, f"there is no room for the model {name!r}", code="model_load_failed")
                else:
                    self._released.clear()
                    await self._released.wait()
        finally:
            self._waits_for_room = False

    async def _unload(self, served: ServedModel) -> None:
        log.info("unloading the model %s", served.name)
        self._known_nbytes[served.name] = served.nbytes
        del self._loaded[served.name]
        await asyncio.to_thread(served.close)
