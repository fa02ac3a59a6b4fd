"""The process that runs programs by ExecuTorch's own CPU runtime. See `executorch_runtime`.

It reads requests from its standard input and writes answers to the pipe that was its standard output.
ExecuTorch prints to both outputs: these go nowhere.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
import torch

# They register the kernels of language models and of quantized layers, where the wheel has them.
KERNELS = (
    "executorch.extension.llm.custom_ops.custom_ops",
    "executorch.kernels.quantized",
    "executorch.exir.passes.dim_order_ops_registry",
)


def main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    from executorch.runtime import Runtime

    for module in KERNELS:
        with suppress(ImportError, OSError, RuntimeError):
            import_module(module)
    runtime = Runtime.get()
    names = sorted(runtime.operator_registry.operator_names)
    kernels = {name: signature for name in names if (signature := _signature(name))}
    _answer(answers, (kernels, runtime.backend_registry.registered_backend_names))
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        _answer(answers, _outcome(runtime, *request))


def _signature(kernel: str) -> list[tuple[str, bool, Any]] | None:
    """The arguments of a kernel: type, whether it is an output, default. None: torch does not know it."""
    namespace, _, rest = kernel.partition("::")
    name, _, overload = rest.partition(".")
    try:
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        schema: Any = getattr(function, "_schema", None)  # torch has no public name for it
    except (AttributeError, RuntimeError):
        return None
    return [(str(a.type), a.is_out, a.default_value) for a in schema.arguments]


def _answer(pipe: Any, answer: Any) -> None:
    pickle.dump(answer, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def _outcome(runtime: Any, program: bytes | str, data_path: str | None, calls: Any) -> Any:
    """The outputs of each call, or the error as a text."""
    try:
        loaded = runtime.load_program(program, data_path=data_path)
        # Loading a method sets the state that it shares with others to its initial contents.
        methods = {name: loaded.load_method(name) for name in sorted(loaded.method_names)}
        return [[_as_numpy(y) for y in methods[name].execute(_inputs(given))] for name, given in calls]
    except Exception as error:  # of ExecuTorch, whose errors have no type of their own
        return str(error)


def _inputs(given: Any) -> list[Any]:
    """A text is None in the file: only `pteron.export` stores it."""
    known = [None if isinstance(value, str) else value for value in given]
    return [_as_torch(*value) if isinstance(value, tuple) else value for value in known]


def _as_torch(array: np.ndarray[Any, Any], dtype: str) -> torch.Tensor:
    return torch.from_numpy(array).to(getattr(torch, dtype))


def _as_numpy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy().copy()


if __name__ == "__main__":
    main()
