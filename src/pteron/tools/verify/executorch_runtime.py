"""ExecuTorch's own CPU runtime as a reference, in a process of its own.

Its kernels may abort the process that they run in. Here, only the reference is lost then.
"""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeAlias

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.references import NoReference

NAME = "ExecuTorch"

# The arguments of a kernel: the type, whether it is an output, the default.
Signature: TypeAlias = Sequence[tuple[str, bool, Any]]

# The name of a method, and its inputs: numbers, or (array, dtype of torch).
MethodCall: TypeAlias = tuple[str, Sequence[Any]]


def is_installed() -> bool:
    return find_spec("executorch") is not None and find_spec("torch") is not None


@cache
def shared() -> ExecutorchRuntime:
    """The runtime that all verifications of this process use: it takes seconds to start."""
    runtime = ExecutorchRuntime()
    atexit.register(runtime.close)
    return runtime


class ExecutorchRuntime:
    """Runs programs. The process is started at first use, and again after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._kernels: Mapping[str, Signature] = {}
        self._backends: Sequence[str] = ()

    @property
    def kernels(self) -> Mapping[str, Signature]:
        """The kernels that the wheel has, by name."""
        if not self._kernels:
            self._start()
        return self._kernels

    @property
    def backends(self) -> Sequence[str]:
        """The delegates that it can run."""
        if not self._kernels:
            self._start()
        return self._backends

    def run(
        self, program: bytes | str, calls: Sequence[MethodCall], data_path: str | None = None
    ) -> list[list[Any]]:
        """The outputs of some calls of a program, one after another. Raises NoReference."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            pickle.dump((program, data_path, calls), process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            answer = self._read(process)
        except (EOFError, OSError):
            self.close()
            raise NoReference("ExecuTorch ended its process") from None
        if isinstance(answer, str):
            raise NoReference(answer)
        return list(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pteron.tools.verify.executorch_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._kernels, self._backends = self._read(self._process)
        except (EOFError, OSError):
            self.close()
            raise NoReference("ExecuTorch's runtime does not start") from None
        return self._process

    def _read(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        return pickle.load(process.stdout)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def as_input(array: Any, dtype: DType | str) -> Any:
    """An input for `ExecutorchRuntime.run`."""
    return (array, str(dtype))
