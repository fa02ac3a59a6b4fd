"""Reads and writes by index: gather, scatter, index, index_put, embeddings.

The operators differ only in the strides that lead from an element to its index and to its position. So one
kernel reads for all of them, and one kernel writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import indexes, moves, or_scalar, put, scattered
from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Scalar,
    Scratch,
    Shape,
    check,
    copy_dispatch,
    describe,
    looked_up,
    looks_up,
    numel,
    op,
    quads,
    reads_part_of,
    threads,
)
from pteron.compiler.ops.elementwise import as_f32, convert_dispatch, signed, wide_target, words_of
from pteron.compiler.ops.integer_expressions import in_two_words
from pteron.compiler.ops.shapes import broadcast, broadcast_strides, contiguous, dimension, walks

Strides = Sequence[int]


def read_indexed(
    x: LiveTensor,
    index: LiveTensor | Scratch,
    out: LiveTensor,
    *,
    x_strides: Strides,
    index_strides: Strides,
    length: int,
    stride: int,
) -> Dispatch:
    """out[i] = x[i . x_strides + index[i . index_strides] * stride]. `out` already has its live shape."""
    check(length > 0 or not out.numel, "an empty dimension cannot be indexed")
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "length": length,
        "stride": stride,
        **walks(out.shape, x=x_strides, index=index_strides),
    }
    return Dispatch("gather", {"x": x, "index": index, "y": out}, params, threads(quads(out.numel)))


def write_indexed(
    x: LiveTensor,
    index: LiveTensor | Scratch,
    source: LiveTensor | float | int,
    out: LiveTensor,
    *,
    sizes: Shape,
    x_strides: Strides,
    index_strides: Strides,
    source_strides: Strides,
    length: int,
    stride: int,
    combine: str | None = None,
) -> list[Dispatch]:
    """out = x with out[i . x_strides + index[i . index_strides] * stride] = source[i . source_strides].

    `combine` is a WGSL expression of the old element (`a`) and the source element (`b`). None: replace.
    """
    out.resize(x.shape)
    check(length > 0 or not numel(sizes), "an empty dimension cannot be indexed")
    is_int64 = out.dtype is DType.int64
    steps = 1
    if is_int64:
        # The dimensions along which several elements may be stored at one place come last.
        fixed = [d for d, step in enumerate(x_strides) if step]
        order = [*fixed, *(d for d in range(len(sizes)) if d not in fixed)]
        steps = numel(tuple(sizes[d] for d in order[len(fixed) :]))
        sizes, x_strides, index_strides, source_strides = (
            tuple(numbers[d] for d in order) for numbers in (sizes, x_strides, index_strides, source_strides)
        )
    wide, narrowing = wide_target(out)
    count = numel(sizes)
    plain = source if isinstance(source, (int, float)) else 0
    params: dict[str, Number] = {
        "length": length,
        "stride": stride,
        **walks(sizes, y=x_strides, index=index_strides, source=source_strides),
    }
    given = source if isinstance(source, LiveTensor) else x
    bound: dict[str, Bound] = {"index": index, "source": given, "y": wide}
    defines = {"HAS_SOURCE": isinstance(source, LiveTensor)}
    low, high = words_of(plain)
    if is_int64:
        params |= {"rows": count // max(steps, 1), "steps": steps, "low": low, "high": high}
        combined = in_two_words(combine or "b")[0]
        code = f"fn combine(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {{ return {combined}; }}"
        rows = threads(count // max(steps, 1))
        return [copy_dispatch(x, out), Dispatch("scatter_int64", bound, params, rows, defines, code)]
    params |= {"count": count, "value": as_f32(plain), "whole": signed(low)}
    defines["REPLACES"] = combine is None
    kind, field = ("f32", "value") if out.dtype.is_float else ("i32", "whole")
    code = f"""
alias kind = {kind};
fn plain_value() -> kind {{ return p.{field}; }}
fn combine(a: kind, b: kind) -> kind {{ return {combine or "b"}; }}
"""
    scatter = Dispatch("scatter", bound, params, threads(count), defines, code)
    return [convert_dispatch(x, wide, x.numel), scatter, *narrowing]


def check_index(index: LiveTensor, length: int, dim: int, *, negative: bool = False) -> None:
    check(not index.dtype.is_float, f"an index must have an integer dtype, not {index.dtype}")
    check(
        index.dtype is not DType.bool,
        "an index of booleans is not supported here: the size of the result would depend on its contents",
    )
    low = -length if negative else 0
    index.require_contents(low, length - 1, f"an index into dimension {dim} of size {length}")


# -- reading --------------------------------------------------------------------------------------


@op("aten.index_select.default", work=reads_part_of("x"), integers=moves("x", indices=("index",)))
def index_select(x: LiveTensor, dim: int, index: LiveTensor, out: LiveTensor) -> Dispatch:
    check(index.rank <= 1, f"index must have at most 1 dimension, not shape {describe(index.shape)}")
    d = dimension(dim, x.rank)
    shape = x.shape or (1,)
    check_index(index, shape[d], d)
    strides = list(contiguous(shape))
    stride, strides[d] = strides[d], 0
    if x.rank:
        out.resize((*shape[:d], index.numel, *shape[d + 1 :]))
    place = [int(k == d) for k in range(len(shape))]
    if not x.rank:
        strides, place = [], []
    return read_indexed(x, index, out, x_strides=strides, index_strides=place, length=shape[d], stride=stride)


@op("aten.gather.default", work=reads_part_of("x"), integers=moves("x", indices=("index",)))
def gather(x: LiveTensor, dim: int, index: LiveTensor, sparse_grad: bool, out: LiveTensor) -> Dispatch:
    d = dimension(dim, x.rank)
    x_strides, length, stride = _indexed_dimension(x, d, index)
    out.resize(index.shape)
    return read_indexed(
        x,
        index,
        out,
        x_strides=x_strides,
        index_strides=contiguous(index.shape),
        length=length,
        stride=stride,
    )


def _indexed_dimension(x: LiveTensor, d: int, index: LiveTensor) -> tuple[list[int], int, int]:
    """The strides of x with 0 for the indexed dimension, and the size and stride of that dimension."""
    check(index.rank == x.rank, f"index {describe(index.shape)} must have the rank of {describe(x.shape)}")
    fits = all(n <= m for k, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if k != d)
    check(fits, f"index {describe(index.shape)} does not fit into {describe(x.shape)} beside dimension {d}")
    if not x.rank:
        return [], 1, 1
    check_index(index, x.shape[d], d)
    strides = list(contiguous(x.shape))
    stride, strides[d] = strides[d], 0
    return strides, x.shape[d], stride


@op("aten.index.Tensor", work=reads_part_of("x"), integers=moves("x", indices=("indices",)))
def index_tensor(x: LiveTensor, indices: Sequence[LiveTensor | None], out: LiveTensor) -> list[Dispatch]:
    place = AdvancedIndex(x, indices)
    out.resize(place.shape)
    return [
        *place.dispatches,
        read_indexed(
            x,
            place.offsets,
            out,
            x_strides=place.x_strides,
            index_strides=place.index_strides,
            length=place.length,
            stride=place.stride,
        ),
    ]


class AdvancedIndex:
    """Indexing with several tensors, as in numpy.

    The indices are broadcast to one shape. Its dimensions replace the indexed dimensions. If the indexed
    dimensions are not neighbours, the dimensions of the indices come first. A single index is used directly.
    Several indices are first added up to offsets into x.
    """

    def __init__(self, x: LiveTensor, indices: Sequence[LiveTensor | None]) -> None:
        given = [(d, index) for d, index in enumerate(indices) if index is not None]
        check(bool(given), "there is no index")
        check(len(indices) <= x.rank, f"{len(indices)} indices are too many for shape {describe(x.shape)}")
        for d, index in given:
            check_index(index, x.shape[d], d, negative=True)
        dims = [d for d, _ in given]
        together = broadcast(*(index.shape for _, index in given))
        adjacent = dims == list(range(dims[0], dims[-1] + 1))
        first = dims[0] if adjacent else 0
        kept = [d for d in range(x.rank) if d not in dims]
        strides = contiguous(x.shape)
        before, after = kept[:first], kept[first:]
        self.shape: Shape = tuple([x.shape[d] for d in before] + list(together) + [x.shape[d] for d in after])
        nothing = [0] * len(together)
        self.x_strides = [strides[d] for d in before] + nothing + [strides[d] for d in after]
        self.dispatches: list[Dispatch] = []
        self.offsets: LiveTensor | Scratch
        if len(given) == 1:
            d, self.offsets = given[0]
            self.length, self.stride = x.shape[d], strides[d]
        else:
            largest = broadcast(*(index.max_shape for _, index in given))
            self.offsets = Scratch("offsets", 4 * numel(largest), DType.int32)
            self.length, self.stride = max(x.numel, 1), 1
            self.dispatches = [
                self._add(index, self.offsets, together, x.shape[d], strides[d], number == 0)
                for number, (d, index) in enumerate(given)
            ]
        self.index_strides = [0] * len(before) + list(contiguous(together)) + [0] * len(after)

    @staticmethod
    def _add(
        index: LiveTensor, offsets: Scratch, shape: Shape, length: int, stride: int, is_first: bool
    ) -> Dispatch:
        count = numel(shape)
        params: dict[str, Number] = {
            "count": count,
            "length": length,
            "stride": stride,
            **walks(shape, index=broadcast_strides(index.shape, shape)),
        }
        bindings: dict[str, Bound] = {"index": index, "offsets": offsets}
        return Dispatch("index_offset", bindings, params, threads(count), {"IS_FIRST": is_first})


# -- writing --------------------------------------------------------------------------------------


@op("aten.scatter.src", "et_vk.scatter_src_unique.default", integers=moves("x", "source", indices=("index",)))
def scatter(
    x: LiveTensor, dim: int, index: LiveTensor, source: LiveTensor, out: LiveTensor
) -> list[Dispatch]:
    return _scatter(x, dim, index, source, out)


@op("aten.scatter.value", integers=moves("x", indices=("index",), interval=or_scalar("value")))
def scatter_value(
    x: LiveTensor, dim: int, index: LiveTensor, value: Scalar, out: LiveTensor
) -> list[Dispatch]:
    return _scatter(x, dim, index, value, out)


@op("aten.scatter_add.default", integers=moves("x", "source", indices=("index",), interval=scattered))
def scatter_add(
    x: LiveTensor, dim: int, index: LiveTensor, source: LiveTensor, out: LiveTensor
) -> list[Dispatch]:
    return _scatter(x, dim, index, source, out, "a + b")


@op(
    "aten.scatter_reduce.two",
    integers=moves("x", "source", indices=("index",), interval=scattered, compares=True),
)
def scatter_reduce(
    x: LiveTensor,
    dim: int,
    index: LiveTensor,
    source: LiveTensor,
    reduce: str,
    include_self: bool,
    out: LiveTensor,
) -> list[Dispatch]:
    combines = {"sum": "a + b", "prod": "a * b", "amax": "max(a, b)", "amin": "min(a, b)"}
    check(reduce in combines, f"reduce must be one of {', '.join(combines)}, not {reduce!r}")
    check(include_self, "include_self must be True")
    return _scatter(x, dim, index, source, out, combines[reduce])


def _scatter(
    x: LiveTensor,
    dim: int,
    index: LiveTensor,
    source: LiveTensor | float | int,
    out: LiveTensor,
    combine: str | None = None,
) -> list[Dispatch]:
    d = dimension(dim, x.rank)
    x_strides, length, stride = _indexed_dimension(x, d, index)
    source_strides: Strides = [0] * index.rank
    if isinstance(source, LiveTensor):
        fits = source.rank == index.rank and all(
            n <= m for n, m in zip(index.shape, source.shape, strict=True)
        )
        check(fits, f"source {describe(source.shape)} does not cover index {describe(index.shape)}")
        source_strides = contiguous(source.shape)
    return write_indexed(
        x,
        index,
        source,
        out,
        sizes=index.shape,
        x_strides=x_strides,
        index_strides=contiguous(index.shape),
        source_strides=source_strides,
        length=length,
        stride=stride,
        combine=combine,
    )


@op("aten.index_put.default", integers=moves("x", "values", indices=("indices",), interval=put))
def index_put(
    x: LiveTensor, indices: Sequence[LiveTensor | None], values: LiveTensor, accumulate: bool, out: LiveTensor
) -> list[Dispatch]:
    place = AdvancedIndex(x, indices)
    check(
        broadcast(values.shape, place.shape) == place.shape,
        f"values {describe(values.shape)} do not broadcast to {describe(place.shape)}",
    )
    stores = write_indexed(
        x,
        place.offsets,
        values,
        out,
        sizes=place.shape,
        x_strides=place.x_strides,
        index_strides=place.index_strides,
        source_strides=broadcast_strides(values.shape, place.shape),
        length=place.length,
        stride=place.stride,
        combine="a + b" if accumulate else None,
    )
    return [*place.dispatches, *stores]


# -- embeddings -----------------------------------------------------------------------------------


@op(
    "aten.embedding.default",
    work=looks_up("weight", by="indices"),
    rows=looked_up("indices"),
    integers=moves("weight", indices=("indices",)),
)
def embedding(
    weight: LiveTensor,
    indices: LiveTensor,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
    out: LiveTensor,
) -> Dispatch:
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    rows, width = weight.shape
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, width))
    return read_indexed(
        weight,
        indices,
        out,
        x_strides=[0] * indices.rank + [1],
        index_strides=[*contiguous(indices.shape), 0],
        length=rows,
        stride=width,
    )


@op(
    "et_vk.embedding_q4gsw.default",
    work=looks_up("weight", "scales", by="indices"),
    rows=looked_up("indices"),
    integers=indexes("indices"),
)
def embedding_q4gsw(
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    indices: LiveTensor,
    is_linear_weight: bool,
    out: LiveTensor,
) -> Dispatch:
    """The weight is [rows, D/2] bytes. `is_linear_weight`: the low nibble is the even element."""
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    rows, packed = weight.shape
    width = out.max_shape[-1]
    check(
        width == 2 * packed and group_size > 0 and scales.rank == 2 and scales.shape[0] >= rows,
        f"weight {describe(weight.shape)} and scales {describe(scales.shape)} do not make rows of {width}",
    )
    check(
        scales.shape[1] * group_size >= width,
        f"{scales.shape[1]} groups of {group_size} do not cover rows of {width}",
    )
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, width))
    params = {
        "quads": quads(out.numel),
        "width": width,
        "rows": rows,
        "group": group_size,
        "groups": scales.shape[1],
    }
    bindings = {"weight": weight, "scales": scales, "indices": indices, "y": out}
    defines = {"LOW_NIBBLE_FIRST": is_linear_weight}
    return Dispatch("embedding_q4", bindings, params, threads(quads(out.numel)), defines)
