"""A drop-in replacement for ExecuTorch's Python runtime: the same names and behaviour, on any GPU.

Example:
    ```python
    from pteron.runtime import Runtime

    program = Runtime.get().load_program("model.pte")
    outputs = program.load_method("forward").execute([x])
    ```

Torch tensors in, torch tensors out. Other arrays in, numpy arrays out. Torch is not needed.
Failures are RuntimeErrors, as in ExecuTorch, with the reason in the message.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import pteron.api.method
import pteron.api.program
from pteron.api.loading import load_file
from pteron.compiler.lower.instructions import READERS
from pteron.compiler.lower.kernel_calls import kernel_names
from pteron.compiler.ops import registered
from pteron.engine.devices.opening import Device, open_device
from pteron.errors import PteronError
from pteron.pte import schema
from pteron.pte.bytesource import Openable
from pteron.pte.file import ProgramFile
from pteron.runtime.etdump_recorder import EtdumpRecorder

__all__ = [
    "BackendRegistry",
    "Method",
    "MethodMeta",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "RuntimeFailure",
    "TensorInfo",
    "Verification",
]


class RuntimeFailure(PteronError, RuntimeError):
    """A RuntimeError, as users of ExecuTorch expect. Its `__cause__` is Pteron's own error."""


@contextmanager
def as_runtime_errors() -> Iterator[None]:
    try:
        yield
    except (PteronError, OSError) as error:
        raise RuntimeFailure(str(error)) from error


class Verification(IntEnum):
    """How much of a file is checked at load. Pteron always checks everything."""

    Minimal = 0
    InternalConsistency = 1


class TensorInfo:
    """The facts about a tensor in a file."""

    def __init__(self, tensor: schema.Tensor) -> None:
        self._tensor = tensor

    def sizes(self) -> tuple[int, ...]:
        """The shape. For a dynamic tensor, the largest shape."""
        return tuple(self._tensor.sizes)

    def dtype(self) -> int:
        """ExecuTorch's number of the element type."""
        return int(self._tensor.scalar_type)

    def is_memory_planned(self) -> bool:
        """Whether the program allocates the tensor, so that the caller need not."""
        return self._tensor.allocation_info is not None or self._tensor.data_buffer_idx != 0

    def nbytes(self) -> int:
        return self._tensor.nbytes

    def __repr__(self) -> str:
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={self._tensor.scalar_type.name.capitalize()}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """The facts about a method in a file. Reading them does not use the GPU."""

    def __init__(self, plan: schema.ExecutionPlan) -> None:
        self._name = plan.name
        values = [value.val for value in plan.values]
        self._inputs = [values[index] for index in plan.inputs]
        self._outputs = [values[index] for index in plan.outputs]
        self._attributes = [value for value in values if _is_attribute(value)]

    def name(self) -> str:
        return self._name

    def num_inputs(self) -> int:
        return len(self._inputs)

    def num_outputs(self) -> int:
        return len(self._outputs)

    def num_attributes(self) -> int:
        return len(self._attributes)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return _tensor_info(self._inputs, index, "input")

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return _tensor_info(self._outputs, index, "output")

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        return _tensor_info(self._attributes, index, "attribute")

    def __repr__(self) -> str:
        return (
            f"MethodMeta(name={self._name!r}, "
            f"num_inputs={self.num_inputs()}, input_tensor_meta={list(map(_describe, self._inputs))}, "
            f"num_outputs={self.num_outputs()}, output_tensor_meta={list(map(_describe, self._outputs))})"
        )


def _is_attribute(value: object) -> bool:
    """Whether a value is an attribute of the model: a tensor with a name."""
    info = value.extra_tensor_info if isinstance(value, schema.Tensor) else None
    return info is not None and info.fully_qualified_name is not None


def _tensor_info(values: Sequence[object], index: int, kind: str) -> TensorInfo:
    if not hasattr(index, "__index__") or index < 0:
        raise TypeError(f"{kind}_tensor_meta takes an index of 0 or more, got {index!r}")
    if index >= len(values):
        raise IndexError(f"Cannot get {kind} tensor meta at {index}: there are {len(values)}")
    value = values[index]
    if not isinstance(value, schema.Tensor):
        raise IndexError(
            f"Cannot get {kind} tensor meta at {index}: it is not a tensor but {_describe(value)}"
        )
    return TensorInfo(value)


def _describe(value: object) -> str:
    return repr(TensorInfo(value)) if isinstance(value, schema.Tensor) else type(value).__name__


class Method:
    """A method on the GPU."""

    def __init__(
        self, method: pteron.api.method.Method, plan: schema.ExecutionPlan, recorder: EtdumpRecorder | None
    ) -> None:
        self._method = method
        self._plan = plan
        self._recorder = recorder

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Run at the inputs' shapes. Returns the outputs as a list."""
        with as_runtime_errors():
            if self._recorder is not None:
                return self._recorder.execute(self._method, self._plan, tuple(inputs))
            return self._method.execute(tuple(inputs))

    @property
    def metadata(self) -> MethodMeta:
        return MethodMeta(self._plan)


class Program:
    """A program. It does not use the GPU until a method is loaded."""

    def __init__(self, runtime: Runtime, file: ProgramFile, recorder: EtdumpRecorder | None = None) -> None:
        self._runtime = runtime
        self._file = file
        self._recorder = recorder
        self._program: pteron.api.program.Program | None = None
        self._methods: dict[str, Method] = {}
        self._lock = threading.Lock()

    @property
    def method_names(self) -> set[str]:
        return set(self._file.method_names)

    @property
    def ordered_method_names(self) -> list[str]:
        """The methods in the order of the file."""
        return list(self._file.method_names)

    @property
    def records(self) -> bool:
        """Whether calls are recorded for an ETDump."""
        return self._recorder is not None

    def load_method(self, name: str) -> Method:
        """A method, ready to execute. Returns the same object every time. A KeyError lists the names."""
        with self._lock:
            if name not in self._methods:
                plan = self._file.plan(name)
                with as_runtime_errors():
                    if self._program is None:
                        self._program = load_file(self._file, self._runtime.device())
                    self._methods[name] = Method(self._program.method(name), plan, self._recorder)
            return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """The facts about a method in the file, without loading it."""
        try:
            return MethodMeta(self._file.plan(method_name))
        except KeyError as error:
            raise RuntimeFailure(f"Failed to get method meta: {error.args[0]}") from None

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        """Write the calls since load. `debug_buffer_path` gets the data of recorded outputs."""
        if self._recorder is None:
            raise RuntimeFailure("No etdump found: load the program with enable_etdump=True")
        with as_runtime_errors():
            self._recorder.write(etdump_path, debug_buffer_path)


class BackendRegistry:
    """The backends whose delegates can run."""

    @property
    def registered_backend_names(self) -> list[str]:
        return list(READERS)

    def is_available(self, backend_name: str) -> bool:
        return backend_name in self.registered_backend_names


class OperatorRegistry:
    """The operators that can run, in delegates (`aten.add.Tensor`) and outside (`aten::add.out`)."""

    @property
    def operator_names(self) -> set[str]:
        return set(registered()) | kernel_names()


class Runtime:
    """The runtime of this process: call `Runtime.get()`."""

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()
        self._device: Device | None = None
        self._lock = threading.Lock()

    @staticmethod
    @cache
    def get() -> Runtime:
        return Runtime()

    def device(self) -> Device:
        """The one device of all programs of this runtime. It is opened at first use."""
        with self._lock:
            if self._device is None:
                self._device = open_device()
            return self._device

    def load_program(
        self,
        data: bytes | bytearray | BinaryIO | Path | str,
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: Path | str | None = None,
    ) -> Program:
        """Open a program from a path, bytes, or a binary file.

        data_path: the `.ptd` file with weights that are stored outside the program.
        enable_etdump: record every call (see `etdump_recorder`). Such calls are slower.
        debug_buffer_size: the largest number of bytes of recorded outputs. 0: they are not recorded.
        All checks are made for every value of `verification`.
        """
        if not isinstance(data, (str, Path, bytes, bytearray)) and not hasattr(data, "read"):
            raise TypeError(
                "Expected data to be bytes, bytearray, a path to a .pte file, or a file-like object, "
                f"but got {type(data).__name__}."
            )
        source = bytes(data) if isinstance(data, bytearray) else data
        external = [] if data_path is None else [data_path]
        return self.open_program(source, external, enable_etdump, debug_buffer_size)

    def open_program(
        self, source: Openable, external: Sequence[Openable], enable_etdump: bool, debug_buffer_size: int
    ) -> Program:
        """Open a program with its `.ptd` files, each a path or bytes."""
        recorder = EtdumpRecorder(debug_buffer_size) if enable_etdump else None
        with as_runtime_errors():
            return Program(self, ProgramFile.open(source, external), recorder)
