"""The kernels of ExecuTorch's portable library, and what computes the same in torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import executorch.exir.passes.dim_order_ops_registry
import executorch.extension.llm.custom_ops.custom_ops
import executorch.kernels.quantized  # noqa: F401  all of these register operators
import torch
import torch.ao.quantization.fx._decomposed

from pteron.compiler.lower.kernel_calls import is_in_place, operator_name
from tests.support.operators import executorch_kernels

NAMESPACES = ("aten", "dim_order_ops", "et_copy", "quantized_decomposed", "llama")
# The runtime in the wheel lacks `allclose`. The next two give numbers to the host. Pteron lacks
# `quantized_moe_ffn`. torch has no functions for the rest, or empty ones: see tests/programs/test_outside.py.
_LEFT_OUT = """
    aten::allclose.Tensor aten::allclose.out aten::_local_scalar_dense aten::sym_numel
    llama::quantized_moe_ffn.out preprocess::tile_crop.out
    quantized_decomposed::add.out quantized_decomposed::mixed_linear.out quantized_decomposed::mixed_mm.out
"""
LEFT_OUT = frozenset(_LEFT_OUT.split())
# These have any contents: only the shape is compared.
ANY_CONTENTS = ("aten::empty.out", "dim_order_ops::_empty_dim_order.out", "aten::rand.out", "aten::randn.out")
SYM_SIZE = "aten::sym_size.int"
# Arguments that change no element of a result.
_WITHOUT_EFFECT = """
    memory_format non_blocking sparse_grad implicit dim_order scale_grad_by_freq sparse drpout_p
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT.split())
# What a kernel changes in place, besides its results.
CHANGES = {
    "aten::_native_batch_norm_legit.out": ("running_mean", "running_var"),
    "llama::sdpa_with_kv_cache.out": ("key_cache", "value_cache"),
    "llama::update_cache.out": ("cache",),
    "llama::update_cache_with_indices.out": ("cache",),
}
# Their results have no meaning, and no program reads them.
WITHOUT_RESULT = ("llama::update_cache.out", "llama::update_cache_with_indices.out")


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str
    default: Any = None
    required: bool = True


@dataclass(frozen=True)
class Kernel:
    """`parameters` are the arguments in the file's order, without the outputs."""

    name: str
    function: Any  # the operator of torch that returns what the kernel writes
    parameters: tuple[Parameter, ...]
    writes_list: bool = False  # split, unbind
    in_place: bool = False

    @property
    def operator(self) -> str:
        """The name without namespace and overload."""
        return self.name.partition("::")[2].partition(".")[0]

    def __call__(self, args: dict[str, Any], dtype: str | None = None) -> list[Any]:
        """Run torch's operator. Integers of the program are plain numbers here."""
        if self.name == SYM_SIZE:
            return [args["self"].shape[args["dim"]]]
        given = {name: _dtype(arg) if name.endswith("dtype") else arg for name, arg in args.items()}
        if dtype is not None:
            given["dtype"] = getattr(torch, dtype)
        made = self.function(**given)
        if self.name in WITHOUT_RESULT:
            return []
        results = [made] if isinstance(made, torch.Tensor) else list(made)
        return [torch.empty(0) if result is None else result for result in results]  # None: not asked for


def _dtype(name: str | None) -> Any:
    return None if name is None else getattr(torch, name)


@cache
def kernel(name: str) -> Kernel:
    if name == SYM_SIZE:
        return Kernel(name, None, (Parameter("self", "Tensor"), Parameter("dim", "int")))
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    schema = _overload(namespace, operator, overload or "default")._schema
    parameters, lists = [], False
    for argument in schema.arguments:
        if argument.is_out:
            lists = lists or str(argument.type).startswith("List")
            continue
        has_default = argument.has_default_value()
        default = argument.default_value if has_default else None
        parameters.append(Parameter(argument.name, str(argument.type), default, not has_default))
    function = _overload(*operator_name(name).split("."))
    return Kernel(name, function, tuple(parameters), lists, is_in_place(name))


def _overload(namespace: str, operator: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload)


def changed_arguments(name: str, args: dict[str, Any]) -> tuple[str, ...]:
    """The arguments that a call of a kernel changes, besides its results."""
    return () if args.get("training") is False else CHANGES.get(name, ())


@cache
def all_options() -> set[str]:
    """The optional arguments of all kernels that have an effect, as `aten::add.out(alpha)`."""
    return {
        option
        for name in all_kernels()
        for option in options(name, [p.name for p in kernel(name).parameters])
    }


def options(name: str, given: Iterable[str]) -> set[str]:
    """Those of the arguments that are optional."""
    known = {p.name for p in kernel(name).parameters if not p.required or p.type.startswith("Optional")}
    return {f"{name}({option})" for option in known.intersection(given) if option not in WITHOUT_EFFECT}


@cache
def all_kernels() -> list[str]:
    """The kernels that programs are made of."""
    left_out = {*LEFT_OUT, SYM_SIZE}
    names = executorch_kernels.recorded()
    return [name for name in names if name.split("::")[0] in NAMESPACES and name not in left_out]
