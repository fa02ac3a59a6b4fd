"""The programs that the backend's unit tests export.

Those tests only look at what was exported, and leave files for a native driver behind. Here they run
while every program they lower is noted down, with the module it came from and its inputs; then each
program is run, and compared with the module itself.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

import pteron
from pteron.engine.devices.opening import Device
from tests.support.calls import Call, problems_of
from tests.support.compare import UNDEFINED
from tests.support.export import remember_rope_patterns

_WHEEL = "executorch.backends.webgpu.test.ops"
_LOWER = "to_edge_transform_and_lower"

Args = Sequence[Any]


@dataclass(eq=False)
class Lowered:
    """A program during its export: its module, its inputs, and its bytes when they are known."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    edge: Any
    finished: Any = None

    @property
    def file(self) -> bytes:
        return bytes((self.finished or self.edge.to_executorch()).buffer)

    def mutated(self, args: Args) -> list[Any]:
        """The arguments that the program writes to. It returns them before its outputs."""
        signature = self.edge.exported_program().graph_signature
        names = set(signature.user_inputs_to_mutate.values())
        return [arg for name, arg in zip(signature.user_inputs, args, strict=True) if name in names]


def lowered_by(name: str, folder: Path) -> list[Lowered]:
    """Every different program that a test module of the wheel exports."""
    wheel = importlib.import_module(f"{_WHEEL}.{name}")
    remember_rope_patterns()
    with redirect_stdout(StringIO()), _noting_down() as programs:
        # Whether they pass is their own affair: some do not, with the torch that the wheel asks for.
        unittest.defaultTestLoader.loadTestsFromModule(wheel).run(unittest.TestResult())
        for exporter in _exporters(wheel):
            exporter(**{p: str(_place(folder, p)) for p in _required(exporter)})
    return list({_fingerprint(program): program for program in programs}.values())


def _exporters(wheel: ModuleType) -> Iterator[Callable[..., None]]:
    """The functions whose only required argument is the target folder."""
    for name, function in inspect.getmembers(wheel, inspect.isfunction):
        places = _required(function)
        if name.startswith("export_") and all(p == "out_dir" or p.endswith("_path") for p in places):
            yield function


def _required(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty]


def _place(folder: Path, parameter: str) -> Path:
    return folder if parameter == "out_dir" else folder / parameter


@contextmanager
def _noting_down() -> Iterator[list[Lowered]]:
    from executorch.exir import EdgeProgramManager

    programs: list[Lowered] = []
    origins: list[tuple[Any, torch.nn.Module, tuple[Any, ...]]] = []
    export, finish = torch.export.export, EdgeProgramManager.to_executorch

    def exporting(module: torch.nn.Module, args: tuple[Any, ...], *more: Any, **options: Any) -> Any:
        exported = export(module, args, *more, **options)
        origins.append((exported, module, copy.deepcopy(args)))
        return exported

    def lowering(exported: Any, *more: Any, **options: Any) -> Any:
        origin = next(origin for origin in origins if origin[0] is exported)
        programs.append(Lowered(*origin[1:], edge := lower(exported, *more, **options)))
        return edge

    def finishing(edge: Any, *more: Any, **options: Any) -> Any:
        finished = finish(edge, *more, **options)
        for program in programs:
            if program.edge is edge:
                program.finished = finished
        return finished

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(torch.export, "export", exporting))
        patches.enter_context(mock.patch.object(EdgeProgramManager, "to_executorch", finishing))
        for module in [m for n, m in sys.modules.items() if n.startswith(_WHEEL) and hasattr(m, _LOWER)]:
            lower = getattr(module, _LOWER)
            patches.enter_context(mock.patch.object(module, _LOWER, lowering))
        yield programs


def _fingerprint(program: Lowered) -> bytes:
    digest = sha256(program.file)
    for arg in program.args:
        digest.update(arg.numpy().tobytes() if isinstance(arg, torch.Tensor) else repr(arg).encode())
    return digest.digest()


# -- running them --------------------------------------------------------------------------------


def compare_with_module(
    program: Lowered, calls: Sequence[Args], device: Device, tolerance: float
) -> list[str]:
    """Call the program and the module with the same arguments, and list the differences."""
    module = copy.deepcopy(program.module)
    with pteron.load(program.file, device=device) as loaded:
        wanted = (Call(args, _eager(module, program, args)) for args in calls)
        return list(problems_of(loaded.method(), wanted, tolerance))


def _is_unwritten(out: Any) -> bool:
    """Whether the module never writes this output, such as the output for an updated cache."""
    if not isinstance(out, torch.Tensor) or not out.is_floating_point():
        return False
    return out.numel() > 0 and bool(out.isnan().all())


@contextmanager
def _unwritten_is_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)  # which has torch fill memory that it hands out
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _eager(module: torch.nn.Module, program: Lowered, args: Args) -> list[Any]:
    args = copy.deepcopy(tuple(args))
    with torch.no_grad(), _unwritten_is_nan():
        outputs = torch.utils._pytree.tree_leaves(module(*args))
    return [UNDEFINED if _is_unwritten(out) else out for out in [*program.mutated(args), *outputs]]


def telling(args: Args) -> Args:
    """The arguments of an export. Tensors of zeros get other numbers, because zeros would hide errors."""
    torch.manual_seed(0)
    return [
        torch.randn_like(arg)
        if isinstance(arg, torch.Tensor) and arg.is_floating_point() and not arg.any()
        else arg
        for arg in args
    ]
