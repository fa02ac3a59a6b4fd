"""A drop-in replacement for `executorch.extension.pybindings.portable_lib`: the same names, on any GPU.

This is the interface that optimum-executorch and ExecuTorch's own scripts call. `pteron.runtime.install()`
puts it in the place of ExecuTorch's.

Results are torch tensors where torch is loaded. Methods that share a mutable buffer in the file share it
here. ExecuTorch's module gives each method a buffer of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pteron.pte.bundled import TestCase, is_bundle
from pteron.pte.bytesource import ByteSource
from pteron.pte.file import ProgramFile
from pteron.runtime.executorch import (
    Method,
    MethodMeta,
    Program,
    Runtime,
    RuntimeFailure,
    TensorInfo,
    Verification,
    as_runtime_errors,
)
from pteron.tools.verify.bundled_tests import value_of

__all__ = [
    "BundledModule",
    "ExecuTorchMethod",
    "ExecuTorchModule",
    "ExecuTorchProgram",
    "MethodMeta",
    "TensorInfo",
    "Verification",
]


class _Loaded:
    """A program, and what modules and programs of ExecuTorch have in common."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def method_meta(self, method_name: str) -> MethodMeta:
        return self._program.metadata(method_name)

    def has_etdump(self) -> bool:
        return self._program.records

    def write_etdump_result_to_file(self, path: str, debug_buffer_path: str | None = None) -> None:
        """Write the calls since load, and to `debug_buffer_path` the data of recorded outputs."""
        self._program.write_etdump_result_to_file(path, debug_buffer_path or os.devnull)

    def _method(self, name: str) -> Method:
        try:
            return self._program.load_method(name)
        except KeyError as error:
            raise RuntimeFailure(str(error.args[0])) from None


class ExecuTorchModule(_Loaded):
    """A program whose methods are loaded at their first call."""

    def __call__(self, inputs: Any = (), clone_outputs: bool = True) -> list[Any]:
        return self.run_method("forward", inputs, clone_outputs)

    def forward(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        return self.run_method("forward", inputs, clone_outputs)

    def run_method(
        self, method_name: str, inputs: Sequence[Any] = (), clone_outputs: bool = True
    ) -> list[Any]:
        """Call a method. Outputs are always copies, so `clone_outputs` changes nothing."""
        return _run(self._method(method_name), inputs)

    def plan_execute(self, method_name: str, clone_outputs: bool = True) -> list[Any]:
        """Call a method that has no inputs."""
        return self.run_method(method_name, (), clone_outputs)

    def method_names(self) -> list[str]:
        return sorted(self._program.method_names)


class ExecuTorchMethod:
    """A method whose inputs are set before a call, and whose outputs are asked for after it."""

    def __init__(self, method: Method) -> None:
        self._loaded = method
        self._inputs: Sequence[Any] = ()
        self._outputs: list[Any] = []

    def set_inputs(self, inputs: Sequence[Any]) -> None:
        self._inputs = tuple(inputs)

    def execute(self) -> None:
        self._outputs = _run(self._loaded, self._inputs)

    def get_outputs(self, clone_outputs: bool = True) -> list[Any]:
        return list(self._outputs)

    def call(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        self.set_inputs(inputs)
        self.execute()
        return self.get_outputs()

    def __call__(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        return self.call(inputs, clone_outputs)

    def method_meta(self) -> MethodMeta:
        return self._loaded.metadata


class ExecuTorchProgram(_Loaded):
    """A program whose methods are loaded one by one."""

    def num_methods(self) -> int:
        return len(self._program.method_names)

    def get_method_name(self, method_index: int) -> str:
        names = self._program.ordered_method_names
        if not 0 <= method_index < len(names):
            raise RuntimeFailure(f"there is no method {method_index}: the program has {len(names)}")
        return names[method_index]

    def load_method(self, method_name: str) -> ExecuTorchMethod:
        return ExecuTorchMethod(self._method(method_name))


class BundledModule:
    """A program with its tests."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        with as_runtime_errors(), ProgramFile.open(buffer) as file:
            if not is_bundle(ByteSource(buffer)):
                raise RuntimeFailure("these bytes are not a bundled program")
            self._suites = {suite.method_name: suite.test_cases for suite in file.test_suites}
        self._module = _load_for_executorch_from_buffer(buffer)

    def verify_result_with_bundled_expected_output(
        self, method_name: str, testset_idx: int, rtol: float = 1e-5, atol: float = 1e-8
    ) -> list[Any]:
        """Run a test. Returns the outputs, or raises if they are not close to the expected ones."""
        case = self._case(method_name, testset_idx)
        made = self._module.run_method(method_name, [value_of(value) for value in case.inputs])
        wanted = [value_of(value) for value in case.expected_outputs]
        for number, (got, want) in enumerate(zip(made, wanted, strict=False)):
            if not np.allclose(np.asarray(got), want, rtol, atol, equal_nan=True):
                worst = np.abs(np.asarray(got) - want).max()
                raise RuntimeFailure(
                    f"output {number} of test {testset_idx} of '{method_name}' differs by up to {worst:.3g} "
                    f"(rtol {rtol}, atol {atol})"
                )
        return made

    def _case(self, method: str, number: int) -> TestCase:
        cases = self._suites.get(method, ())
        if not 0 <= number < len(cases):
            raise RuntimeFailure(f"there is no test {number} of '{method}': it has {len(cases)}")
        return cases[number]


def _run(method: Method, inputs: Sequence[Any]) -> list[Any]:
    torch = sys.modules.get("torch")
    outputs = method.execute(inputs)
    if torch is None:
        return outputs
    return [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in outputs]


def _opened(
    source: str | bytes, data: Sequence[str | bytes | None], etdump: bool, debug_buffer_size: int
) -> Program:
    given = [each for each in data if each is not None]
    return Runtime.get().open_program(source, given, etdump, debug_buffer_size)


def _load_for_executorch(
    program_path: str,
    data_path: str | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    return ExecuTorchModule(_opened(program_path, [data_path], enable_etdump, debug_buffer_size))


def _load_for_executorch_from_buffer(
    buffer: bytes,
    data_map_buffer: bytes | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    return ExecuTorchModule(_opened(bytes(buffer), [data_map_buffer], enable_etdump, debug_buffer_size))


def _load_for_executorch_from_bundled_program(
    module: BundledModule,
    data_map_buffer: bytes | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
) -> ExecuTorchModule:
    return _load_for_executorch_from_buffer(module._buffer, data_map_buffer, enable_etdump, debug_buffer_size)


def _load_for_executorch_from_data_loader(loader: Any, *args: Any, **options: Any) -> ExecuTorchModule:
    raise RuntimeFailure(
        "Pteron cannot read from a loader of ExecuTorch: pass a path to _load_for_executorch, or bytes to "
        "_load_for_executorch_from_buffer"
    )


def _load_program(
    path: str,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: str | None = None,
) -> ExecuTorchProgram:
    return ExecuTorchProgram(_opened(path, [data_path], enable_etdump, debug_buffer_size))


def _load_program_from_buffer(
    buffer: bytes,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: str | None = None,
) -> ExecuTorchProgram:
    return ExecuTorchProgram(_opened(bytes(buffer), [data_path], enable_etdump, debug_buffer_size))


def _load_bundled_program_from_buffer(buffer: bytes, non_const_pool_size: int = 16384) -> BundledModule:
    return BundledModule(bytes(buffer))


def _is_available(backend_name: str) -> bool:
    return Runtime.get().backend_registry.is_available(backend_name)


def _get_registered_backend_names() -> list[str]:
    return Runtime.get().backend_registry.registered_backend_names


def _get_operator_names() -> list[str]:
    return sorted(Runtime.get().operator_registry.operator_names)


# ExecuTorch computes with threads, Pteron with a GPU: there is nothing to count, to change or to record.


def _threadpool_get_thread_count() -> int:
    return 1


def _unsafe_reset_threadpool(num_threads: int) -> None: ...


def _create_profile_block(name: str) -> None: ...


def _dump_profile_results() -> bytes:
    return b""


def _reset_profile_results() -> None: ...
