"""A program: a `.pte` file, its weights on the GPU, and its methods."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pteron.ops  # noqa: F401  registers the operators
from pteron.errors import PteronError
from pteron.fusion import fuse
from pteron.gpu.weights import Weights
from pteron.gpu.wgpu.adapters import Adapter
from pteron.gpu.wgpu.device import Device
from pteron.ir.problems import unsupported
from pteron.ir.values import Graph
from pteron.lower.budget import MAX_NODES, Budget
from pteron.lower.instructions import try_lower
from pteron.measure import trials, tuning
from pteron.method import Method
from pteron.plan.routes import Choice
from pteron.pte.file import ProgramFile
from pteron.report.check import refusals


def load(
    source: Any,
    *,
    data_path: str | Path | Iterable[str | Path] | None = None,
    device: str | int | Adapter | Device | None = None,
    fuse: Iterable[str] | None = None,
    tune: bool | None = None,
    choice: Choice | None = None,
    max_nodes: int = MAX_NODES,
) -> Program:
    """Load a `.pte` file (a path, bytes, or an open binary file).

    data_path: the `.ptd` file or files that hold weights kept apart from the program.
    device: an adapter's index or part of its name; the best one when left out.
    fuse: the fusion passes to run (see `pteron.fusion`); all when left out, none for `()`.
    tune: whether to time the kernels that could do the work, where this has not been done on this device
        before (see `pteron tune`); left out, on GPUs.
    choice: which of several kernels to take; left out, what has been measured on this device.
    max_nodes: the most nodes that the program's methods may have together. A small file can ask for millions,
        by loops inside loops; a file that you trust may have more than the default.
    """
    paths = [data_path] if isinstance(data_path, (str, Path)) else list(data_path or ())
    file = ProgramFile.open(source, paths)
    try:
        return Program(file, device, fuse, tune, choice, max_nodes)
    except BaseException:
        file.close()
        raise


def _lower(file: ProgramFile, max_nodes: int) -> dict[str, Graph]:
    """The graphs of all methods. One error lists all that stands in the way of any of them."""
    graphs, problems = {}, {}
    budget = Budget(max_nodes)
    for name in file.method_names:
        graphs[name], missing = try_lower(file, name, budget)
        problems[name] = missing or refusals(graphs[name])
    if any(problems.values()):
        raise unsupported(problems)
    return graphs


class Program:
    """A loaded program. It owns the file, the weights and the device; methods are made on first use."""

    def __init__(
        self,
        file: ProgramFile,
        device: str | int | Adapter | Device | None = None,
        passes: Iterable[str] | None = None,
        tune: bool | None = None,
        choice: Choice | None = None,
        max_nodes: int = MAX_NODES,
    ) -> None:
        self.file = file
        self._graphs = {name: fuse(graph, passes) for name, graph in _lower(file, max_nodes).items()}
        self._owns_device = not isinstance(device, Device)
        self.device = device if isinstance(device, Device) else Device(device)
        self._weights = Weights(self.device)
        self._choice = choice
        self._tune = tune if tune is not None else not self.device.adapter.is_software
        self._methods: dict[str, Method] = {}
        self._lock = threading.RLock()
        self._closed = False

    @property
    def method_names(self) -> tuple[str, ...]:
        return self.file.method_names

    def method(self, name: str = "forward") -> Method:
        """A method, loaded when it is first asked for. The same object every time."""
        with self._lock:
            if self._closed:
                raise PteronError("the program is closed")
            if name not in self._methods:
                self.file.plan(name)  # says which methods there are, if this is none of them
                with self.device.lock:
                    self._methods[name] = self._load(name, self._choice or self._best_choice(name))
            return self._methods[name]

    def _load(self, name: str, choice: Choice | None) -> Method:
        return Method(self, self._graphs[name], self.device, self._weights, choice)

    def _best_choice(self, name: str) -> Choice | None:
        """What has been measured on this device, before or right now."""
        known = tuning.read(self.device.adapter)
        if not self._tune:
            return known
        undecided = trials.undecided(self._graphs[name], self.device, known)
        return trials.hold(partial(self._load, name), self.device, undecided) if undecided else known

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call `forward`."""
        return self.method("forward")(*inputs, **options)

    def close(self) -> None:
        """Free everything on the GPU. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for method in self._methods.values():
                method.close()
            self._methods.clear()
            self._weights.close()
            if self._owns_device:
                self.device.close()
            self.file.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Program {', '.join(self.method_names)} on {self.device.adapter.name}>"
