"""The files that the page shows, and the answers to its questions: plain functions from JSON to JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pteron.api.loading import load
from pteron.api.program import Program
from pteron.compiler.lower.bounds import GivenShapes
from pteron.compiler.pipeline import GraphOptions, Target
from pteron.engine.arrays.numpy_arrays import convert_constant, from_gpu
from pteron.engine.devices.opening import Device, open_device
from pteron.engine.measured.target import target_of
from pteron.errors import InputError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import MethodInfo, inspect_methods, open_file
from pteron.tools.viewer.device_runs import Array, DeviceRuns, read_arrays
from pteron.tools.viewer.scene import KINDS, Scene, method_json
from pteron.tools.viewer.tensor_views import slice_view, statistics

THIS_DEVICE = "this device"
MOST_CALLS = 100


@dataclass(frozen=True, slots=True)
class Question:
    """What the page asks about: a method of a file, for a kind of device, at these sizes."""

    file: int
    method: str
    kind: str
    fused: bool
    sizes: Mapping[str, int]
    rest: Mapping[str, Any]

    @classmethod
    def of(cls, body: Any) -> Question:
        body = _taken("the question", body, dict)
        sizes = _taken("sizes", body.get("sizes", {}), dict)
        return cls(
            _taken("file", body.get("file", 0), int),
            _taken("method", body.get("method", "forward"), str),
            _taken("kind", body.get("kind", next(iter(KINDS))), str),
            _taken("fused", body.get("fused", True), bool),
            {name: _taken(name, size, int) for name, size in sizes.items()},
            body,
        )

    def integer(self, name: str, default: int | None = None) -> int:
        number: int = _taken(name, self.rest.get(name, default), int)
        return number

    def integers(self, name: str) -> list[int] | None:
        given = self.rest.get(name)
        return None if given is None else [_taken(name, item, int) for item in _taken(name, given, list)]


class Viewer:
    """Opens files. Plans and programs are made when the page asks for them, and kept."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        data_paths: Sequence[str | Path] = (),
        device: Any = None,
        shapes: GivenShapes | None = None,
    ) -> None:
        self._paths = [Path(path) for path in paths]
        self._data_paths = list(data_paths)
        self._wanted = device
        self._shapes = shapes
        self._stack = ExitStack()
        self._lock = threading.RLock()
        self._device: Device | None = None
        self._scenes: dict[tuple[int, str, str, bool], Scene] = {}
        self._programs: dict[tuple[int, bool], Program] = {}
        self._runs: dict[tuple[int, str, bool], DeviceRuns] = {}
        self._given: dict[int, dict[str, Array]] = {}
        try:
            self.files: list[ProgramFile] = [
                self._stack.enter_context(open_file(path, self._data_paths)) for path in self._paths
            ]
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        with self._lock:
            for program in self._programs.values():
                program.close()
            self._programs.clear()
            if self._device is not None:
                self._device.close()
            self._stack.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- questions ----------------------------------------------------------------------------------

    @property
    def answers(self) -> Mapping[str, Callable[[Question], Any]]:
        """The answer to each kind of question."""
        return {
            "files": self._files_json,
            "graph": lambda q: self.scene(q).graph_json(),
            "live": lambda q: self.scene(q).live_json(q.sizes),
            "node": lambda q: self.scene(q).node_json(q.integer("node"), q.sizes),
            "memory": lambda q: self.scene(q).memory_json(),
            "constant": self._constant_json,
            "profile": lambda q: self._run(q).profile_json(
                q.sizes, self._arrays(q), max(1, min(q.integer("repeat", 5), MOST_CALLS))
            ),
            "run": lambda q: self._run(q).run_json(q.sizes, self._arrays(q)),
            "tensor": lambda q: self._run(q).tensor_json(
                q.integer("value"), q.integers("axes"), q.integers("at")
            ),
        }

    def _files_json(self, question: Question) -> dict[str, Any]:
        return {
            "files": [
                {
                    "name": path.name,
                    "nbytes": path.stat().st_size,
                    "methods": [method_json(info) for info in self._inspected(file)],
                }
                for path, file in zip(self._paths, self.files, strict=True)
            ],
            "kinds": [*KINDS, THIS_DEVICE],
        }

    def _inspected(self, file: ProgramFile) -> list[MethodInfo]:
        return inspect_methods(file, file.method_names, options=GraphOptions(shapes=self._shapes))

    def _constant_json(self, question: Question) -> dict[str, Any]:
        tensor = self.scene(question).tensor(question.integer("value"))
        if tensor.constant is None:
            raise InputError(f"{tensor.name} is not a constant")
        array = from_gpu(convert_constant(tensor), tensor.dtype, tensor.dtype.label, tensor.max_shape)
        shown = slice_view(array, question.integers("axes"), question.integers("at"))
        return {"statistics": statistics(array), "slice": shown}

    # -- given inputs --------------------------------------------------------------------------------

    def give(self, file: int, name: str, data: bytes) -> dict[str, Any]:
        """Take a `.npy` file for an input, or a `.npz` file for several. Returns the shapes by input."""
        self._file(file)
        arrays = read_arrays(data, name)
        with self._lock:
            given = self._given.setdefault(file, {})
            given.update(arrays)
            return {key: list(array.shape) for key, array in given.items()}

    def take_back(self, file: int) -> None:
        """Use random inputs again."""
        with self._lock:
            self._given.pop(file, None)

    def _arrays(self, question: Question) -> dict[str, Array]:
        with self._lock:
            return dict(self._given.get(question.file, {}))

    # -- plans and programs --------------------------------------------------------------------------

    def scene(self, question: Question) -> Scene:
        key = (question.file, question.method, question.kind, question.fused)
        with self._lock:
            if key not in self._scenes:
                file = self._file(question.file)
                if question.method not in file.method_names:
                    names = ", ".join(file.method_names)
                    raise InputError(f"there is no method {question.method!r}; the methods are {names}")
                target = self._target(question.kind)
                self._scenes[key] = Scene(
                    file, question.method, target=target, fused=question.fused, shapes=self._shapes
                )
            return self._scenes[key]

    def _target(self, kind: str) -> Target:
        if kind == THIS_DEVICE:
            return target_of(self._open_device())
        if kind not in KINDS:
            raise InputError(f"there is no kind of device {kind!r}; the kinds are {', '.join(KINDS)}")
        return KINDS[kind]

    def _run(self, question: Question) -> DeviceRuns:
        key = (question.file, question.method, question.fused)
        with self._lock:
            if key not in self._runs:
                self._runs[key] = DeviceRuns(self._program(question), self.scene(question))
            return self._runs[key]

    def _program(self, question: Question) -> Program:
        key = (question.file, question.fused)
        if key not in self._programs:
            self._programs[key] = load(
                self._paths[question.file],
                data_path=self._data_paths,
                device=self._open_device(),
                fuse=None if question.fused else (),
                tune=False,
                shapes=self._shapes,
                methods=(),
            )
        return self._programs[key]

    def _open_device(self) -> Device:
        with self._lock:
            if self._device is None:
                self._device = open_device(self._wanted)
            return self._device

    def _file(self, number: int) -> ProgramFile:
        if not 0 <= number < len(self.files):
            raise InputError(f"there is no file {number}; {len(self.files)} are open")
        return self.files[number]


def _taken(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{name}: expected {kind.__name__}, got {value!r}")
    return value
