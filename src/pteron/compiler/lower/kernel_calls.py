"""The kernels that a program calls outside its delegates, and the operator that each computes.

A kernel is the out-variant of an operator: `aten::add.out` computes `aten.add.Tensor` into a given tensor.
Its arguments are those of the operator, without the options for allocation; then the outputs; then the return
values, which are the outputs again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pteron.compiler import ops
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.op import OpSpec
from pteron.compiler.ir.values import Arg, Tensor
from pteron.pte.schema import ScalarType


def is_internal(name: str) -> bool:
    """Whether only Pteron creates this operator, so that no file may call it. Such a name has no overload."""
    return name.startswith("pteron.") and name.count(".") == 1


# Out-variants do not have these options: the given output tensor determines them.
ALLOCATION_OPTIONS = ("dtype", "layout", "device", "pin_memory", "pin")

# Checks that the exporter leaves in a program. They have no result.
NO_OPERATION = frozenset(
    {
        "aten::_assert_async.msg",
        "aten::_assert_scalar",
        "aten::_assert_tensor_metadata",
        "aten::sym_constrain_range",
        "aten::sym_constrain_range_for_size",
    }
)

# Overload names that only name the output.
NAMED_OUTPUT = ("out", "output", "values", "grad_input")

# `op.out` is `op.default` and `op.kind_out` is `op.kind`, with these exceptions.
IRREGULAR = {
    "add.out": "Tensor",
    "all.all_out": "default",
    "all.out": "dim",
    "any.all_out": "default",
    "any.out": "dim",
    "arange.out": "default",
    "arange.start_out": "start_step",
    "choose_qparams.Tensor_out": "tensor",
    "copysign.out": "Tensor",
    "dequantize_per_tensor.Tensor_out": "tensor",
    "div.out": "Tensor",
    "div.out_mode": "Tensor_mode",
    "empty.out": "memory_format",
    "frobenius_norm.out": "dim",
    "ldexp.out": "Tensor",
    "max.dim_max": "dim",
    "max.out": "other",
    "max.unary_out": "default",
    "mean.dtype_out": "default",
    "mean.out": "dim",
    "median.dim_values": "dim",
    "min.dim_min": "dim",
    "min.out": "other",
    "min.unary_out": "default",
    "mul.out": "Tensor",
    "norm.dtype_out": "ScalarOpt_dim_dtype",
    "norm.out": "ScalarOpt_dim",
    "prod.int_out": "dim_int",
    "quantize_per_tensor.Tensor_out": "tensor",
    "sort.values_stable": "stable",
    "std.out": "dim",
    "sub.out": "Tensor",
    "sum.IntList_out": "dim_IntList",
    "var.out": "dim",
    "xlogy.OutTensor": "Tensor",
}

# Operators with a second name in torch, for a view that may alias or as a shorthand.
SAME = {
    "aten._conj_copy.default": "aten._conj_physical.default",
    "aten._adaptive_avg_pool2d.default": "aten.adaptive_avg_pool2d.default",
    "aten.div.Scalar_mode": "aten.div.Tensor_mode",
    "aten.max.other": "aten.maximum.default",
    "aten.min.other": "aten.minimum.default",
    "llama.fallback.default": "aten.alias_copy.default",
    "executorch_prim.et_view.default": "aten.view_copy.default",
}

# Namespaces of ExecuTorch's own operators. Delegates write these operators without the namespace.
BARE_NAMESPACES = ("llama", "executorch_prim")


def operator_name(kernel: str) -> str:
    """The operator that a kernel computes: `aten::add.out` -> `aten.add.Tensor`."""
    namespace, _, rest = kernel.partition("::")
    name, _, overload = rest.partition(".")
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]  # computed in place
    overload = IRREGULAR.get(f"{name}.{overload}") or _regular(overload)
    return f"{namespace}.{name}.{overload}"


def _regular(overload: str) -> str:
    return "default" if overload in ("", *NAMED_OUTPUT) else overload.removesuffix("_out")


def find(kernel: str) -> OpSpec | None:
    """The registered operator of a kernel."""
    if is_internal(kernel):
        return None
    return next((spec for name in _names(kernel) if (spec := ops.find(name))), None)


def operator_names() -> list[str]:
    """The operators of torch that a file may call, such as aten.erfc.default."""
    return sorted(name for name in ops.registered() if name.count(".") == 2 and not is_internal(name))


def kernel_names() -> set[str]:
    """The names of the kernels of all registered operators: `aten::add.out` for `aten.add.Tensor`."""
    names = {f"aten::{kernel}" for kernel in IRREGULAR}
    for operator in operator_names():
        namespace, name, overload = operator.split(".")
        names.add(f"{namespace}::{name}.{'out' if overload == 'default' else f'{overload}_out'}")
    return {name for name in names if find(name) is not None}


def _names(kernel: str) -> Iterator[str]:
    yield kernel
    name = operator_name(kernel)
    yield name
    if name in SAME:
        yield SAME[name]
    namespace, _, bare = name.partition(".")
    if namespace in BARE_NAMESPACES:
        yield bare


def is_in_place(kernel: str) -> bool:
    """Whether a kernel writes its first argument, such as `aten::index_put_`."""
    name = kernel.partition("::")[2].partition(".")[0]
    return name.endswith("_") and not name.endswith("__")


def with_options(spec: OpSpec, inputs: Sequence[Arg], out: Tensor) -> list[Arg]:
    """The arguments in the order of the operator's schema: options that an out-variant lacks are None.

    A dtype that it lacks is LONG if its output is an int64, which a GPU may store in one word.
    """
    lacking = len(spec.parameters) - 1 - len(inputs)
    options = [p for p in spec.parameters[:-1] if p in ALLOCATION_OPTIONS]
    if lacking <= 0 or lacking > len(options):
        return list(inputs)
    left_out: dict[str, Arg] = dict.fromkeys(options[:lacking])
    if "dtype" in left_out and out.dtype is DType.int64:
        left_out["dtype"] = int(ScalarType.LONG)
    given = iter(inputs)
    return [left_out[p] if p in left_out else next(given) for p in spec.parameters[:-1]]
