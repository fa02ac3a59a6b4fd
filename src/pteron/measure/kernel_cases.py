"""The built-in set of operators and shapes: `pteron bench --report` times it, docs/kernels.md describes it.

Every family of operators that has several kernels is here, at shapes of real models. The depth and width of
2048 is a layer of a language model with a billion weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import pteron.ops  # noqa: F401  registers the operators
from pteron.ir.dtypes import DType
from pteron.ir.op import find
from pteron.ir.values import Arg, Constant, Graph, Node, Port, Shape, Tensor, numel, values_in
from pteron.pte.bytesource import ByteSource

WIDTH, GROUP = 2048, 32
ROWS = (1, 128, 8, 4, 2, 512)  # the most important first: a report with little time measures these


@dataclass(frozen=True, slots=True)
class CaseTensor:
    """A tensor argument. A constant is a weight or a KV cache."""

    shape: Shape
    dtype: DType = DType.float32
    constant: bool = False


@dataclass(frozen=True, slots=True)
class KernelCase:
    """An operator with its arguments. The output is the last one."""

    family: str
    name: str
    operator: str
    args: tuple[Any, ...]


def _x(*shape: int, dtype: DType = DType.float32) -> CaseTensor:
    return CaseTensor(shape, dtype)


def _w(*shape: int, dtype: DType = DType.float32) -> CaseTensor:
    return CaseTensor(shape, dtype, constant=True)


# The weights of a linear layer by format: the operator, and its arguments between x and the output.
_GROUPS = WIDTH // GROUP
_FORMATS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "float32": ("aten.linear.default", (_w(WIDTH, WIDTH), None)),
    "float16": ("aten.linear.default", (_w(WIDTH, WIDTH, dtype=DType.float16), None)),
    "4-bit symmetric": (
        "et_vk.linear_q4gsw.default",
        (_w(WIDTH, WIDTH // 2, dtype=DType.uint8), _w(_GROUPS, WIDTH), GROUP, None),
    ),
    "4-bit with minima": (
        "pteron.linear_affine.default",
        (
            _w(WIDTH, WIDTH // 8, dtype=DType.int32),
            _w(WIDTH, _GROUPS, 2, dtype=DType.float16),
            4,
            GROUP,
            0,
            None,
            None,
        ),
    ),
    "int8 in groups": (
        "pteron.linear_int8",
        (_w(WIDTH, WIDTH, dtype=DType.int8), _w(WIDTH, _GROUPS), None, GROUP, None),
    ),
    "int8 per channel": (
        "aten._weight_int8pack_mm.default",
        (_w(WIDTH, WIDTH, dtype=DType.int8), _w(WIDTH)),
    ),
}


def _linears(form: str) -> list[KernelCase]:
    operator, weights = _FORMATS[form]
    return [
        KernelCase(
            f"Linear, {form} weights",
            f"{rows} × {WIDTH} × {WIDTH}",
            operator,
            (_x(rows, WIDTH), *weights, _x(rows, WIDTH)),
        )
        for rows in ROWS
    ]


def _int8_linears() -> list[KernelCase]:
    weights = (_w(WIDTH, WIDTH, dtype=DType.int8), _w(WIDTH, dtype=DType.int32), _w(WIDTH))
    return [
        KernelCase(
            "Linear, int8 weights and activations",
            f"{rows} × {WIDTH} × {WIDTH}",
            "et_vk.linear_q8ta_q8csw.default",
            (_x(rows, WIDTH, dtype=DType.int8), 0.1, 3, *weights, None, _x(rows, WIDTH)),
        )
        for rows in ROWS
    ]


def _matrices() -> list[KernelCase]:
    family = "Matrix product"
    cases = [
        KernelCase(family, f"{m} × {k} × {n}", "aten.mm.default", (_x(m, k), _x(k, n), _x(m, n)))
        for m, k, n in ((512, 512, 512), (128, WIDTH, WIDTH), (1, WIDTH, WIDTH), (1024, 1024, 1024))
    ]
    batch = (_x(16, 128, 64), _x(16, 64, 128), _x(16, 128, 128))
    return [*cases, KernelCase(family, "16 of 128 × 64 × 128", "aten.bmm.default", batch)]


def _cached_attention(queries: int, past: int, dtype: DType = DType.float32) -> KernelCase:
    heads, shared, width, context = 32, 8, 64, 2048
    key = _x(1, queries, shared, width)
    cache = _w(1, context, shared, width, dtype=dtype)
    q = _x(1, queries, heads, width)
    args = (q, key, key, cache, cache, past, queries, None, 0.0, True, None, q)
    name = f"{queries} after {past}, 32 heads share 8, {dtype} cache"
    return KernelCase("Attention with a KV cache", name, "sdpa_with_kv_cache.default", args)


def _attention() -> list[KernelCase]:
    x = _x(1, 12, 256, 64)
    plain = KernelCase("Attention", "256 × 256, 12 heads", "et_vk.sdpa.default", (x, x, x, None, None, x))
    return [
        _cached_attention(1, 511),
        _cached_attention(128, 0),
        plain,
        _cached_attention(1, 2047),
        _cached_attention(1, 2047, DType.float16),
        _cached_attention(4, 508),
    ]


def _norms() -> list[KernelCase]:
    cases = [
        KernelCase(
            "RMS norm",
            f"{rows} × {WIDTH}",
            "et_vk.rms_norm.default",
            (_x(rows, WIDTH), _w(WIDTH), 1e-5, _x(rows, WIDTH)),
        )
        for rows in (1, 128)
    ]
    layer = (_x(128, 768), [768], _w(768), _w(768), 1e-5, [_x(128, 768), _x(128, 1), _x(128, 1)])
    cases.append(KernelCase("Layer norm", "128 × 768", "aten.native_layer_norm.default", layer))
    for rows, width in ((128, WIDTH), (1, 32768)):
        args = (_x(rows, width), 1, False, _x(rows, width))
        cases.append(KernelCase("Softmax", f"{rows} × {width}", "aten._softmax.default", args))
    return cases


def _convolutions() -> list[KernelCase]:
    def packed(ins: int, outs: int, size: int, window: int, groups: int = 1) -> KernelCase:
        pad = window // 2
        args = (
            _x(1, ins, size, size),
            _w(ins // groups, window, window, outs),
            _w(outs),
            [1, 1],
            [pad, pad],
            [1, 1],
            groups,
            0.0,
            None,
            _x(1, outs, size, size),
        )
        per_channel = ", one filter per channel" if groups > 1 else ""
        name = f"{window}×{window}, {ins} → {outs} channels, {size}×{size}{per_channel}"
        return KernelCase("Convolution", name, "pteron.packed_convolution", args)

    return [packed(64, 64, 56, 3), packed(256, 64, 56, 1), packed(96, 96, 56, 3, 96), packed(512, 512, 7, 3)]


def _elementwise() -> list[KernelCase]:
    x, million = _x(1024, 1024), "1024 × 1024"
    family = "Element by element"
    return [
        KernelCase(family, f"add, {million}", "aten.add.Tensor", (x, x, 1, x)),
        KernelCase(family, f"mul by a row, {million}", "aten.mul.Tensor", (x, _x(1024), x)),
        KernelCase(family, f"silu, {million}", "aten.silu.default", (x, x)),
        KernelCase(family, f"permute, {million}", "aten.permute_copy.default", (x, [1, 0], x)),
    ]


def _reductions() -> list[KernelCase]:
    family = "Reduction"

    def total(rows: int, width: int) -> KernelCase:
        args = (_x(rows, width), [1], False, None, _x(rows))
        return KernelCase(family, f"sum of rows, {rows} × {width}", "aten.sum.dim_IntList", args)

    everything = (_x(256, 4096), [0, 1], False, None, _x())
    best = (_x(1, 32768), 1, False, _x(1, dtype=DType.int32))
    pooled = (_x(1, 512, 7, 7), [2, 3], False, None, _x(1, 512))
    return [
        total(128, WIDTH),
        KernelCase(family, "sum of all, 256 × 4096", "aten.sum.dim_IntList", everything),
        KernelCase(family, "argmax, 1 × 32768", "aten.argmax.default", best),
        KernelCase(family, "mean of 512 images, 7 × 7", "aten.mean.dim", pooled),
    ]


def in_turns(families: Iterable[list[KernelCase]]) -> list[KernelCase]:
    """The first case of every family, then the second of every family, and so on."""
    return [case for turn in zip_longest(*families) for case in turn if case is not None]


CASES = in_turns(
    [
        *(_linears(form) for form in _FORMATS),
        _int8_linears(),
        _matrices(),
        _attention(),
        _norms(),
        _convolutions(),
        _elementwise(),
        _reductions(),
    ]
)


# -- a case as a graph -------------------------------------------------------------------------------

Contents: TypeAlias = Callable[[CaseTensor], bytes]


def zeros(tensor: CaseTensor) -> bytes:
    return bytes(numel(tensor.shape) * tensor.dtype.itemsize)


def case_graph(case: KernelCase, contents: Contents = zeros) -> Graph:
    """A graph with one node. `contents` gives the bytes of the constants."""
    graph = Graph(case.operator)
    spec = find(case.operator)
    assert spec is not None, case.operator

    def argument(arg: Any, is_output: bool) -> Arg:
        if isinstance(arg, list):
            return tuple(argument(item, is_output) for item in arg)
        if not isinstance(arg, CaseTensor):
            return arg  # type: ignore[no-any-return]
        stored = Constant(ByteSource(contents(arg)).region(), arg.dtype.label) if arg.constant else None
        tensor = graph.tensor(arg.dtype, arg.shape, f"v{len(graph.values)}", stored)
        if stored is None and not is_output:
            graph.inputs.append(Port(tensor.name, tensor, arg.dtype.label, True))
        return tensor

    *given, out = case.args
    args = spec.bind([*(argument(arg, False) for arg in given), argument(out, True)])
    reads = tuple(value for arg in args[:-1] for value in values_in(arg))
    writes, mutates = spec.outputs(args), spec.mutated(args)
    graph.nodes.append(Node(0, case.operator, spec, args, reads, writes, mutates, "kernel case"))
    graph.outputs = [Port(t.name, t, t.dtype.label, True) for t in writes if isinstance(t, Tensor)]
    graph.states = [t for t in mutates if t.constant is not None]
    return graph
