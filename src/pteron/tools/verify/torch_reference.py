"""Compute a node with torch: each operator by its own eager implementation.

Operators of ExecuTorch (et_vk, quantized_decomposed) are registered by importing parts of ExecuTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Graph, Node, SymInt, Tensor, ValueId
from pteron.pte.schema import ScalarType
from pteron.tools.verify.references import NoReference
from pteron.tools.verify.walk import NodeRun

REGISTER = {  # the modules that register the operators of a namespace
    "et_vk": "executorch.backends.vulkan.custom_ops_lib",
    "dim_order_ops": "executorch.exir.passes.dim_order_ops_registry",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization",
}
WITHOUT_EFFECT = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
SHORT_FLOATS = {DType.float16: torch.float16, DType.bfloat16: torch.bfloat16}
IS_RANDOM = ("rand", "randn", "native_dropout", "dropout", "bernoulli")


def _write_back(x: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(x)


_OWN: dict[str, Callable[..., Any]] = {
    "pteron.write_back": _write_back,
    "pteron.complex_abs": torch.abs,
    "pteron.complex_add": lambda a, b, alpha: torch.add(a, b, alpha=alpha),
    "pteron.complex_cast": lambda x, *_: x.to(torch.complex64),
    "pteron.complex_div": torch.div,
    "pteron.complex_mul": torch.mul,
    "pteron.complex_sub": lambda a, b, alpha: torch.sub(a, b, alpha=alpha),
}


class TorchReference:
    """keep_float32: compute with float32 where the program has 16-bit floats."""

    name = "torch"

    def __init__(self, keep_float32: bool = False) -> None:
        self._keep_float32 = keep_float32

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        function = _plain(run.node) or partial(_call, _function(run.node.name))
        args, mutated = self._arguments(graph, run)
        try:
            with torch.no_grad():
                made = function(*args)
        except Exception as error:  # torch refuses what Pteron accepts, such as a dtype
            raise NoReference(f"{run.node.name}: {error}") from None
        written = [value for value in run.node.writes if isinstance(value, Tensor)]
        results = [made] if isinstance(made, torch.Tensor) else list(made or ())
        if len(results) < len(written):
            raise NoReference(f"{run.node.name} returns {len(results)} tensors, expected {len(written)}")
        return [_as_numpy(result) for result in (*results[: len(written)], *mutated)]

    def _arguments(self, graph: Graph, run: NodeRun) -> tuple[list[Any], list[torch.Tensor]]:
        """The arguments for torch, and those that the operator changes in place."""
        made: dict[ValueId, torch.Tensor] = {}

        def convert(arg: Arg) -> Any:
            if isinstance(arg, tuple):
                return [convert(item) for item in arg]
            if isinstance(arg, SymInt):
                return run.given[arg.id]
            if isinstance(arg, Tensor):
                if arg.id not in made:
                    made[arg.id] = self._as_torch(run.given[arg.id], arg.dtype)
                return made[arg.id]
            return arg

        args = [convert(arg) for arg in run.node.args[:-1]]
        return args, [made[tensor.id] for tensor in run.node.mutates]

    def _as_torch(self, array: np.ndarray[Any, Any], dtype: DType) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(array))
        if dtype in SHORT_FLOATS:
            return tensor.to(torch.float32 if self._keep_float32 else SHORT_FLOATS[dtype])
        # The GPU has 32-bit integers where torch has 64.
        return tensor.to(torch.int64) if tensor.dtype == torch.int32 else tensor


def _plain(node: Node) -> Callable[..., Any] | None:
    """An operator that torch does not have, in plain torch."""
    if node.name == "pteron.cast":
        (out,) = node.writes
        assert isinstance(out, Tensor)
        return partial(torch.Tensor.to, dtype=getattr(torch, out.dtype.label))
    return _OWN.get(node.name)


@cache
def _function(name: str) -> Any:
    space, operator, overload = _parts(name)
    if operator in IS_RANDOM:
        raise NoReference(f"{name} is random")
    with suppress(ImportError, OSError):
        if space in REGISTER:
            import_module(REGISTER[space])
    try:
        return getattr(getattr(getattr(torch.ops, space), operator), overload)
    except (AttributeError, RuntimeError):
        raise NoReference(f"torch has no operator {name}") from None


def _parts(name: str) -> tuple[str, str, str]:
    """The namespace, the operator and the overload in a name such as aten.add.Tensor."""
    space, *rest = name.replace("::", ".").split(".")
    operator, overload = (*rest, "default", "default")[:2]
    return space, operator, overload


def _call(function: Any, *args: Any) -> Any:
    """Call an operator with the arguments of a file, which are in the order of its schema."""
    schema: Any = getattr(function, "_schema", None)  # torch has no public name for it
    formal = schema.arguments
    if len(args) > len(formal):
        raise ValueError(f"torch takes {len(formal)} arguments, the file has {len(args)}")
    named = {parameter.name: arg for parameter, arg in zip(formal, args, strict=False)}
    for name in WITHOUT_EFFECT:
        named.pop(name, None)
    if isinstance(named.get("dtype"), int):
        named["dtype"] = getattr(torch, ScalarType(named["dtype"]).name.lower())
    return function(**named)


def _as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return made
