"""Arguments for kernels that random arguments hardly ever fit: a function for each, by its name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.differential.drawing import NUMBERS, Drawing, Impossible
from tests.differential.fills import DTYPES, FLOATS, INTEGERS

Args = dict[str, Any]
Hint = Callable[[Drawing], Args]
HINTS: dict[str, Hint] = {}
SHORT = ("float32", "float32", "float16", "bfloat16")


def hint(*operators: str) -> Callable[[Hint], Hint]:
    def add(function: Hint) -> Hint:
        HINTS.update(dict.fromkeys(operators, function))
        return function

    return add


# -- products ------------------------------------------------------------------------------------------


def _matrix(
    d: Drawing, rows: list[int], columns: list[int], dtype: str, batch: list[int] | None = None
) -> str:
    return d.source(dtype, [*([batch] if batch else []), rows, columns])


@hint("mm")
def mm(d: Drawing) -> Args:
    a = d.tensor((*SHORT, "int32", "int64"), (2,))
    return {"self": f"${a}", "mat2": "$" + _matrix(d, d.sizes(a, 1), d.a_size(), d.dtype(a))}


@hint("addmm")
def addmm(d: Drawing) -> Args:
    a = d.tensor((*SHORT, "int32"), (2,))
    columns = d.a_size()
    b = _matrix(d, d.sizes(a, 1), columns, d.dtype(a))
    bias = [[columns], [d.sizes(a, 0), columns], [d.sizes(a, 0), [1] * d.points]][d.rng.randrange(3)]
    args: Args = {"self": "$" + d.source(d.dtype(a), bias), "mat1": f"${a}", "mat2": f"${b}"}
    whole = d.dtype(a) == "int32"
    for name in ("beta", "alpha"):
        if d.chance(0.4):
            args[name] = d.rng.choice([0, 1, 2, -1] if whole else [0, 1, 0.5, -2.0])
    return args


@hint("bmm")
def bmm(d: Drawing) -> Args:
    a = d.tensor((*SHORT, "int64"), (3,))
    return {"self": f"${a}", "mat2": "$" + _matrix(d, d.sizes(a, 2), d.a_size(), d.dtype(a), d.sizes(a, 0))}


@hint("linear")
def linear(d: Drawing) -> Args:
    x = d.tensor(SHORT, (1, 2, 3))
    out = [d.rng.choice([1, 3, 4, 8, 12])] * d.points
    args: Args = {"input": f"${x}", "weight": "$" + _matrix(d, out, d.sizes(x, -1), d.dtype(x))}
    if d.chance(0.6):
        args["bias"] = "$" + d.source(d.dtype(x), [out])
    return args


# -- convolutions and windows --------------------------------------------------------------------------


@hint("convolution")
def convolution(d: Drawing) -> Args:
    x = d.tensor(SHORT, (3, 4))
    space = d.rank(x) - 2
    channels, groups = d.fixed(x, 1), d.rng.choice([1, 1, 2, 3, d.fixed(x, 1)])
    if not channels or channels % groups:
        raise Impossible
    out, transposed = groups * d.rng.choice([1, 2, 3, 4]), d.chance(0.25)
    outer = [channels, out // groups] if transposed else [out, channels // groups]
    weight = d.source(
        d.dtype(x), [[n] * d.points for n in (*outer, *(d.rng.choice([1, 2, 3]) for _ in range(space)))]
    )
    return {
        "input": f"${x}",
        "weight": f"${weight}",
        "bias": "$" + d.source(d.dtype(x), [[out] * d.points]) if d.chance(0.6) else None,
        "stride": [d.rng.choice([1, 1, 2]) for _ in range(space)],
        "padding": [d.rng.choice([0, 1, 2]) for _ in range(space)],
        "dilation": [d.rng.choice([1, 1, 2]) for _ in range(space)],
        "transposed": transposed,
        "output_padding": [d.rng.choice([0, 0, 1]) if transposed else 0 for _ in range(space)],
        "groups": groups,
    }


@hint("convolution_backward")
def convolution_backward(d: Drawing) -> Args:
    args = convolution(d)
    bias = args.pop("bias")
    (y,) = d.step("aten::convolution.out", {**args, "bias": bias})
    channels = d.fixed(y, 1)
    sizes = None if bias is None else [channels]
    mask = [d.chance(0.8), d.chance(0.8), bias is not None]
    return {**args, "grad_output": "$" + d.like(y), "bias_sizes": sizes, "output_mask": mask}


def _window(d: Drawing, x: str) -> Args:
    size = [d.rng.choice([1, 2, 3]) for _ in range(2)]
    args: Args = {"self": f"${x}", "kernel_size": size}
    if d.chance(0.6):
        args["stride"] = [d.rng.choice([1, 2, 3]) for _ in range(2)]
    if d.chance(0.6):
        args["padding"] = [d.rng.randint(0, n // 2) for n in size]
    if d.chance(0.4):
        args["ceil_mode"] = d.chance(0.7)
    return args


@hint("avg_pool2d")
def avg_pool2d(d: Drawing) -> Args:
    args = _window(d, d.tensor(SHORT, (3, 4)))
    if d.chance(0.5):
        args["count_include_pad"] = d.chance(0.5)
    if d.chance(0.3):
        args["divisor_override"] = d.rng.choice([1, 3, -2])
    return args


@hint("max_pool2d_with_indices")
def max_pool2d(d: Drawing) -> Args:
    args = _window(d, d.tensor((*SHORT, "int8", "int32"), (3, 4)))
    if d.chance(0.4):
        args["dilation"] = [d.rng.choice([1, 2]) for _ in range(2)]
    return args


@hint("max_pool2d_with_indices_backward")
def max_pool2d_backward(d: Drawing) -> Args:
    args = max_pool2d(d)
    y, indices = d.step("aten::max_pool2d_with_indices.out", args)
    full = {"stride": args["kernel_size"], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": False, **args}
    return {**full, "grad_output": "$" + d.like(y), "indices": f"${indices}"}


@hint("_adaptive_avg_pool2d")
def adaptive_pool(d: Drawing) -> Args:
    return {"self": "$" + d.tensor(SHORT, (3, 4)), "output_size": [d.rng.randint(1, 5) for _ in range(2)]}


@hint("_upsample_bilinear2d_aa")
def antialiased(d: Drawing) -> Args:
    x = d.tensor(SHORT, (4,))
    args: Args = {
        "self": f"${x}",
        "output_size": [d.rng.randint(1, 9) for _ in range(2)],
        "align_corners": d.chance(0.4),
    }
    if d.chance(0.3):  # the factors that the sizes follow from
        sizes = [d.fixed(x, 2), d.fixed(x, 3)]
        factors = [d.rng.choice([0.5, 0.75, 1.5, 2.0]) for _ in sizes]
        args["output_size"] = [int(size * factor) for size, factor in zip(sizes, factors, strict=True)]
        args["scales_h"], args["scales_w"] = factors
    return args


@hint("upsample_nearest2d")
def upsample(d: Drawing) -> Args:
    x = d.tensor((*SHORT, "uint8"), (4,))
    if d.chance(0.5):
        return {
            "input": f"${x}",
            "output_size": [d.rng.randint(1, 9) for _ in range(2)],
            "scale_factors": None,
        }
    factors = [d.rng.choice([0.5, 1.0, 1.7, 2.0, 3.0]) for _ in range(2)]
    return {"input": f"${x}", "output_size": None, "scale_factors": factors}


@hint("upsample_bilinear2d")
def bilinear(d: Drawing) -> Args:
    return {**upsample(d), "align_corners": d.chance(0.5)}


@hint("grid_sampler_2d")
def grid_sampler(d: Drawing) -> Args:
    x = d.tensor(("float32", "float32", "float16"), (4,))
    grid = d.source(
        d.dtype(x),
        [d.sizes(x, 0), d.a_size(), d.a_size(), [2] * d.points],
        d.rng.choice(["normal", "normal", "edges"]),
    )
    return {
        "input": f"${x}",
        "grid": f"${grid}",
        "interpolation_mode": d.rng.randint(0, 2),
        "padding_mode": d.rng.randint(0, 2),
        "align_corners": d.chance(0.5),
    }


@hint("pixel_shuffle")
def pixel_shuffle(d: Drawing) -> Args:
    factor = d.rng.choice([1, 2, 3])
    dims = [[factor * factor * d.rng.choice([1, 2])] * d.points, d.a_size(), d.a_size()]
    x = d.source(d.any_dtype(), [*([d.a_size()] if d.chance(0.7) else []), *dims])
    return {"self": f"${x}", "upscale_factor": factor}


@hint("pixel_unshuffle")
def pixel_unshuffle(d: Drawing) -> Args:
    factor = d.rng.choice([1, 2, 3])
    dims = [d.a_size(), *([factor * n for n in d.a_size()] for _ in range(2))]
    x = d.source(d.any_dtype(), [*([d.a_size()] if d.chance(0.7) else []), *dims])
    return {"self": f"${x}", "downscale_factor": factor}


def _padding(space: int) -> Hint:
    def draw(d: Drawing) -> Args:
        x = d.tensor(DTYPES, (space + 1, space + 2))
        return {"self": f"${x}", "padding": [d.rng.choice([-1, 0, 0, 1, 2, 3]) for _ in range(2 * space)]}

    return draw


for _kind in ("reflection", "replication"):
    for _space in (1, 2, 3):
        HINTS[f"{_kind}_pad{_space}d"] = _padding(_space)


@hint("constant_pad_nd")
def constant_pad(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3, 4))
    args: Args = {
        "self": f"${x}",
        "pad": [d.rng.choice([-1, 0, 0, 1, 2]) for _ in range(2 * d.rng.randint(0, d.rank(x)))],
    }
    if d.chance(0.6):
        args["value"] = d.scalar(d.dtype(x))
    return args


# -- norms ---------------------------------------------------------------------------------------------


def _channels(d: Drawing, x: str, fill: str | None = None, kind: str | None = None) -> str:
    return "$" + d.source(d.dtype(x), [d.sizes(x, 1)], fill, kind)


def _scale(d: Drawing, x: str) -> Args:
    return {name: _channels(d, x) if d.chance(0.7) else None for name in ("weight", "bias")}


@hint("_native_batch_norm_legit_no_training")
def batch_norm(d: Drawing) -> Args:
    x = d.tensor(SHORT, (2, 3, 4))
    stats = {"running_mean": _channels(d, x, "normal"), "running_var": _channels(d, x, "positive")}
    return {"input": f"${x}", **_scale(d, x), **stats, "momentum": 0.1, "eps": d.rng.choice([1e-5, 1e-3])}


def batch_norm_of_batch(d: Drawing) -> Args:
    x = d.tensor(SHORT, (2, 3, 4))
    return {
        "input": f"${x}",
        **_scale(d, x),
        "training": True,
        "momentum": 0.1,
        "eps": d.rng.choice([1e-5, 1e-3]),
    }


def batch_norm_with_buffers(d: Drawing) -> Args:
    x = d.tensor(("float32", "float16"), (2, 3, 4))
    training = d.chance(0.5)
    stats = {
        "running_mean": _channels(d, x, "normal", "buffer" if training else None),
        "running_var": _channels(d, x, "positive", "buffer" if training else None),
    }
    return {
        "input": f"${x}",
        **_scale(d, x),
        **stats,
        "training": training,
        "momentum": d.rng.choice([0.1, 0.7]),
        "eps": 1e-5,
    }


HINTS["_native_batch_norm_legit.no_stats_out"] = batch_norm_of_batch
HINTS["_native_batch_norm_legit.out"] = batch_norm_with_buffers


@hint("native_group_norm")
def group_norm(d: Drawing) -> Args:
    x = d.tensor(SHORT, (3,))
    channels = d.fixed(x, 1)
    groups = [g for g in (1, 2, 3, 4, channels) if g and channels % g == 0]
    if not groups:
        raise Impossible
    sizes = {"N": d.size(x, 0), "C": channels, "HxW": d.size(x, 2)}
    return {"input": f"${x}", **_scale(d, x), **sizes, "group": d.rng.choice(groups), "eps": 1e-5}


@hint("native_layer_norm")
def layer_norm(d: Drawing) -> Args:
    x = d.tensor(SHORT, (1, 2, 3))
    count = d.rng.randint(1, d.rank(x))
    dims = range(d.rank(x) - count, d.rank(x))
    weights = {
        name: "$" + d.source(d.dtype(x), [d.sizes(x, dim) for dim in dims]) if d.chance(0.7) else None
        for name in ("weight", "bias")
    }
    return {
        "input": f"${x}",
        "normalized_shape": [d.size(x, dim) for dim in dims],
        **weights,
        "eps": d.rng.choice([1e-5, 1e-2]),
    }


@hint("_softmax", "_log_softmax")
def softmax(d: Drawing) -> Args:
    x = d.tensor((*SHORT, "float64"))
    return {"self": f"${x}", "dim": d.dim(d.rank(x)), "half_to_float": False}


@hint("native_dropout")
def dropout(d: Drawing) -> Args:
    return {"input": "$" + d.tensor(SHORT), "p": 0.5, "train": False}


# -- indices -------------------------------------------------------------------------------------------


def _index_dtype(d: Drawing) -> str:
    return d.rng.choice(["int64", "int64", "int32"])


@hint("embedding")
def embedding(d: Drawing) -> Args:
    weight = d.tensor((*FLOATS, "int8", "int64"), (2,))
    index = d.index(
        [d.a_size() for _ in range(d.rng.randint(0, 3))], d.least(weight, 0), dtype=_index_dtype(d)
    )
    return {"weight": f"${weight}", "indices": f"${index}", **({"padding_idx": 0} if d.chance(0.3) else {})}


@hint("gather")
def gather(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    dims = d.dims(x)
    dims[dim] = d.a_size()
    return {"self": f"${x}", "dim": dim, "index": "$" + d.index(dims, d.least(x, dim))}


@hint("index_select")
def index_select(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    return {
        "self": f"${x}",
        "dim": dim,
        "index": "$" + d.index([d.a_size()], d.least(x, dim), dtype=_index_dtype(d)),
    }


def _scatter_index(d: Drawing, x: str, dim: int, unique: bool) -> str:
    """With `unique`, no element is written twice: then the order of the writes would decide."""
    ones = [1] * d.points
    if not unique:
        return d.index(d.dims(x), d.least(x, dim))
    if d.chance(0.5):
        dims = d.dims(x)
        dims[dim] = ones
        return d.index(dims, d.least(x, dim))
    dims = [ones] * d.rank(x)
    dims[dim] = [d.rng.randint(1, max(1, d.least(x, dim)))] * d.points
    return d.index(dims, d.least(x, dim), unique=True)


def _scatter(with_source: bool, unique: bool) -> Hint:
    def draw(d: Drawing) -> Args:
        x = d.tensor(ranks=(1, 2, 3))
        dim = d.dim(d.rank(x))
        index = _scatter_index(d, x, dim, unique)
        args: Args = {"self": f"${x}", "dim": dim, "index": f"${index}"}
        if with_source:
            return {**args, "src": "$" + d.source(d.dtype(x), d.dims(index))}
        return {**args, "value": d.scalar(d.dtype(x))}

    return draw


HINTS["scatter.src_out"] = _scatter(True, True)
HINTS["scatter.value_out"] = _scatter(False, False)
HINTS["scatter_add.out"] = _scatter(True, False)


def _indices(d: Drawing, x: str, masks: bool, unique: bool) -> list[str | None]:
    """Index tensors for the first dimensions. One of them may be left out."""
    count = d.rng.randint(1, min(3, d.rank(x)))
    if masks and d.chance(0.15):
        return ["$" + d.source("bool", d.dims(x)[:count], "normal", "input")]
    dims = [d.a_size() for _ in range(d.rng.choice([1, 1, 2]))]
    found: list[str | None] = []
    for dim in range(count):
        if count > 1 and d.chance(0.25) and any(found + [None] * (dim < count - 1)):
            found.append(None)
            continue
        first = not any(found)
        found.append("$" + d.index(dims, d.least(x, dim), unique=unique and first, dtype=_index_dtype(d)))
    if not any(found):
        raise Impossible
    return found


@hint("index")
def index(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    return {"self": f"${x}", "indices": _indices(d, x, True, False)}


def _index_put(d: Drawing, x: str) -> Args:
    accumulate = d.chance(0.4)
    indices = _indices(d, x, False, not accumulate)
    (shape,) = d.step("aten::index.Tensor_out", {"self": f"${x}", "indices": indices})
    values = d.like(shape) if d.chance(0.6) else d.source(d.dtype(x), [])
    return {"self": f"${x}", "indices": indices, "values": f"${values}", "accumulate": accumulate}


@hint("index_put")
def index_put(d: Drawing) -> Args:
    return _index_put(d, d.tensor(ranks=(1, 2, 3)))


@hint("index_put_")
def index_put_in_place(d: Drawing) -> Args:
    return _index_put(
        d, d.source(d.any_dtype(), [[d.rng.choice([3, 5, 9])] * d.points, [4] * d.points], kind="buffer")
    )


@hint("masked_scatter")
def masked_scatter(d: Drawing) -> Args:
    x = d.tensor()
    return {
        "self": f"${x}",
        "mask": "$" + d.partner(x, ("bool",)),
        "source": "$" + d.source(d.dtype(x), d.dims(x)),
    }


@hint("masked_select")
def masked_select(d: Drawing) -> Args:
    x = d.tensor()
    return {"self": f"${x}", "mask": "$" + d.source("bool", d.dims(x), "normal", "input")}


@hint("repeat_interleave")
def repeat_interleave(d: Drawing) -> Args:
    if d.chance(0.5):
        repeats = d.source("int64", [d.fixed_size()], "range 0 4", "constant")
        return {"repeats": f"${repeats}", "output_size": int(d.env[repeats][0].sum())}
    return {"repeats": "$" + d.source(_index_dtype(d), [d.a_size()], "range 0 4", "input")}


@hint("select_scatter")
def select_scatter(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    at = d.rng.randint(-d.least(x, dim), max(0, d.least(x, dim) - 1))
    (part,) = d.step("aten::select_copy.int_out", {"self": f"${x}", "dim": dim, "index": at})
    return {"self": f"${x}", "src": "$" + d.like(part), "dim": dim, "index": at}


@hint("slice_scatter")
def slice_scatter(d: Drawing) -> Args:
    args = slice_copy(d)
    (part,) = d.step("aten::slice_copy.Tensor_out", args)
    return {**args, "src": "$" + d.like(part)}


# -- shapes --------------------------------------------------------------------------------------------


@hint("slice_copy")
def slice_copy(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    most = d.sizes(x, dim)[0]
    args: Args = {"self": f"${x}", "dim": dim}
    for name in ("start", "end"):
        if d.chance(0.7):
            args[name] = d.rng.choice(
                [0, d.rng.randint(-most - 1, most + 1), 2**63 - 1 if name == "end" else 1]
            )
    if d.chance(0.4):
        args["step"] = d.rng.choice([1, 2, 3])
    return args


@hint("narrow_copy")
def narrow(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    least = d.least(x, dim)
    start = d.rng.randint(-least, least)
    length = d.rng.randint(0, -start if start < 0 else least - start)
    return {"self": f"${x}", "dim": dim, "start": start, "length": length}


@hint("select_copy")
def select(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    least = d.least(x, dim)
    return {"self": f"${x}", "dim": dim, "index": d.rng.randint(-least, max(0, least - 1))}


@hint("split_copy")
def split(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    return {"self": f"${x}", "split_size": d.rng.randint(1, max(1, d.sizes(x, dim)[0])), "dim": dim}


@hint("split_with_sizes_copy")
def split_with_sizes(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    left, sizes = d.fixed(x, dim), []
    while left or not sizes:
        sizes.append(d.rng.randint(0, left))
        left -= sizes[-1]
        if len(sizes) == 4:
            sizes.append(left)
            break
    return {"self": f"${x}", "split_sizes": sizes, "dim": dim}


@hint("view_copy")
def view(d: Drawing) -> Args:
    x = d.tensor()
    shape: list[Any] = [d.size(x, dim) for dim in range(d.rank(x))]
    how = d.rng.randrange(5)
    if how == 0:
        shape = [-1]
    elif how == 1 and shape:
        shape = [-1, d.fixed(x, -1)]
    elif how == 2 and shape:
        shape.insert(d.rng.randint(0, len(shape)), 1)
    elif how == 3 and shape:
        shape[d.rng.randrange(len(shape))] = -1
    elif how == 4 and len(shape) > 1:
        at = d.rng.randrange(len(shape) - 1)
        shape[at : at + 2] = [-1]
    return {"self": f"${x}", "size": shape}


@hint("expand_copy")
def expand(d: Drawing) -> Args:
    x = d.tensor(ranks=(0, 1, 2, 3))
    shape: list[Any] = []
    for dim in range(d.rank(x)):
        one = set(d.sizes(x, dim)) == {1}
        shape.append(d.rng.choice([-1, 1, 3]) if one else d.rng.choice([-1, d.size(x, dim)]))
    if d.chance(0.4):
        shape = [d.rng.choice([1, 2, 4]), *shape]
    return {"self": f"${x}", "size": shape}


@hint("repeat")
def repeat(d: Drawing) -> Args:
    x = d.tensor(ranks=(0, 1, 2, 3))
    return {
        "self": f"${x}",
        "repeats": [d.rng.choice([0, 1, 1, 2, 3]) for _ in range(d.rank(x) + d.rng.choice([0, 0, 1]))],
    }


@hint("permute_copy")
def permute(d: Drawing) -> Args:
    x = d.tensor()
    dims = d.rng.sample(range(d.rank(x)), d.rank(x))
    return {"self": f"${x}", "dims": [n - d.rank(x) if d.chance(0.2) else n for n in dims]}


@hint("t_copy")
def transpose(d: Drawing) -> Args:
    return {"self": "$" + d.tensor(ranks=(0, 1, 2, 2, 2))}


@hint("as_strided_copy")
def as_strided(d: Drawing) -> Args:
    x = d.tensor()
    elements = min(math.prod(shape) for shape in d.shapes(x))
    rank = d.rng.randint(0, 3)
    size = [d.rng.choice([1, 2, 3]) for _ in range(rank)]
    stride = [d.rng.choice([0, 1, 1, 2, 3]) for _ in range(rank)]
    reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if reach >= elements:
        raise Impossible
    offset = d.rng.choice([None, 0, d.rng.randint(0, elements - reach - 1)])
    return {"self": f"${x}", "size": size, "stride": stride, "storage_offset": offset}


@hint("unfold_copy")
def unfold(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    return {
        "self": f"${x}",
        "dimension": dim,
        "size": d.rng.randint(1, max(1, d.least(x, dim))),
        "step": d.rng.randint(1, 3),
    }


@hint("diagonal_copy")
def diagonal(d: Drawing) -> Args:
    x = d.tensor(ranks=(2, 3, 4))
    one, two = d.rng.sample(range(d.rank(x)), 2)
    return {"self": f"${x}", "offset": d.rng.randint(-3, 3), "dim1": one, "dim2": two - d.rank(x)}


@hint("roll")
def roll(d: Drawing) -> Args:
    x = d.tensor()
    dims = d.rng.sample(range(d.rank(x)), d.rng.randint(0, d.rank(x)))
    return {"self": f"${x}", "shifts": [d.rng.randint(-9, 9) for _ in dims or [0]], "dims": dims}


@hint("unsqueeze_copy")
def unsqueeze(d: Drawing) -> Args:
    x = d.tensor(ranks=(0, 1, 2, 3))
    return {"self": f"${x}", "dim": d.rng.randint(-d.rank(x) - 1, d.rank(x))}


@hint("topk")
def topk(d: Drawing) -> Args:
    x = d.tensor(NUMBERS, (1, 2, 3))
    dim = d.dim(d.rank(x))
    args: Args = {"self": f"${x}", "k": d.rng.randint(0, d.least(x, dim)), "dim": dim}
    if d.chance(0.6):
        args |= {"largest": d.chance(0.5), "sorted": True}
    return args


@hint("stack")
def stack(d: Drawing) -> Args:
    x = d.tensor(ranks=(0, 1, 2, 3))
    others = [d.like(x) for _ in range(d.rng.randint(0, 3))]
    return {"tensors": [f"${name}" for name in (x, *others)], "dim": d.rng.randint(-d.rank(x) - 1, d.rank(x))}


@hint("cat")
def cat(d: Drawing) -> Args:
    x = d.tensor(ranks=(1, 2, 3))
    dim = d.dim(d.rank(x))
    names = [x]
    for _ in range(d.rng.randint(0, 3)):
        dims = d.dims(x)
        dims[dim] = d.a_size()
        dtype = d.dtype(x) if d.chance(0.85) else d.any_dtype()
        names.append(d.like(x) if d.chance(0.3) else d.source(dtype, dims))
    return {"tensors": [f"${name}" for name in names], "dim": dim}


# -- others --------------------------------------------------------------------------------------------


@hint("empty", "ones", "zeros", "rand", "randn")
def created(d: Drawing) -> Args:
    x = d.tensor()
    size = [d.size(x, dim) for dim in range(d.rank(x))]
    if d.chance(0.3):
        size.append(d.rng.randint(0, 4))
    return {"size": size}


@hint("full")
def full(d: Drawing) -> Args:
    return {**created(d), "fill_value": d.scalar(d.any_dtype())}


@hint("_empty_dim_order")
def empty_in_order(d: Drawing) -> Args:
    size = created(d)["size"]
    return {"size": size, "dim_order": list(range(len(size)))}


@hint("arange")
def arange(d: Drawing) -> Args:
    return {"end": d.rng.choice([0, 5, 7.5, d.rng.randint(0, 30)])}


def arange_from(d: Drawing) -> Args:
    start, step = d.rng.choice([0, -3, 2.5, 7]), d.rng.choice([1, 2, 0.5, -1, -0.3])
    return {"start": start, "end": start + step * d.rng.randint(0, 20), "step": step}


HINTS["arange.start_out"] = arange_from


@hint("copy")
def copy(d: Drawing) -> Args:
    x = d.tensor()
    return {"self": f"${x}", "src": "$" + d.partner(x, same=0.4)}


@hint("copy_")
def copy_in_place(d: Drawing) -> Args:
    """A buffer that takes on a value that was computed from it."""
    if not d.record.steps:
        d.step("aten::neg.out", {"self": "$" + d.tensor(NUMBERS)})
    values = d.tensors(lambda name: len(set(d.shapes(name))) == 1 and name.startswith("t"))
    if not values:
        raise Impossible
    value = d.rng.choice(values)
    dtype = d.dtype(value) if d.chance(0.7) and d.dtype(value) in DTYPES else d.any_dtype()
    buffer = d.source(dtype, d.dims(value), kind="buffer")
    (total,) = d.step("aten::add.out", {"self": f"${buffer}", "other": f"${value}"})
    return {"self": f"${buffer}", "src": f"${total}"}


HINTS["fill.Tensor_out"] = lambda d: {"self": "$" + d.tensor(), "value": "$" + d.source(d.any_dtype(), [])}
HINTS["fill.Scalar_out"] = lambda d: {"self": "$" + (x := d.tensor()), "value": d.scalar(d.dtype(x))}


@hint("_cdist_forward")
def cdist(d: Drawing) -> Args:
    x = d.tensor(("float32",), (2, 3))
    dims = d.dims(x)
    dims[-2] = d.a_size()
    p = d.rng.choice([0.0, 1.0, 2.0, 2.5, math.inf])
    return {
        "x1": f"${x}",
        "x2": "$" + d.source("float32", dims),
        "p": p,
        "compute_mode": d.rng.choice([None, 0, 1, 2]),
    }


@hint("_pdist_forward")
def pdist(d: Drawing) -> Args:
    return {"self": "$" + d.tensor(("float32",), (2,)), "p": d.rng.choice([0.0, 1.0, 2.0, 2.5, math.inf])}


@hint("glu")
def glu(d: Drawing) -> Args:
    x = d.source(d.any_dtype(SHORT), [d.a_size(), [2 * n for n in d.a_size()], d.a_size()])
    return {"self": f"${x}", "dim": d.rng.choice([1, -2])}


@hint("where")
def where(d: Drawing) -> Args:
    x = d.tensor()
    return {"condition": "$" + d.partner(x, ("bool",)), "self": f"${x}", "other": "$" + d.partner(x)}


@hint("masked_fill")
def masked_fill(d: Drawing) -> Args:
    x = d.tensor()
    return {"self": f"${x}", "mask": "$" + d.partner(x, ("bool",)), "value": d.scalar(d.dtype(x))}


def _shift_by_tensor(d: Drawing) -> Args:
    x = d.tensor(INTEGERS)
    fill = d.rng.choice(["positive", "range 0 8", "normal"])
    return {"self": f"${x}", "other": "$" + d.source(d.dtype(x), d.dims(x), fill, "input")}


def _shift_by_number(d: Drawing) -> Args:
    return {"self": "$" + d.tensor(INTEGERS), "other": d.rng.choice([0, 1, 2, 7, 8, 31, 33])}


for _side in ("left", "right"):
    HINTS[f"bitwise_{_side}_shift.Tensor_out"] = _shift_by_tensor
    HINTS[f"bitwise_{_side}_shift.Tensor_Scalar_out"] = _shift_by_number


@hint("logit")
def logit(d: Drawing) -> Args:
    return {"self": "$" + d.tensor(), "eps": d.rng.choice([None, 1e-6, 0.1, 0.5])}


@hint("gelu")
def gelu(d: Drawing) -> Args:
    return {"self": "$" + d.tensor(FLOATS), "approximate": d.rng.choice(["none", "tanh"])}


@hint("view_as_real_copy", "_conj_physical")
def complex_numbers(d: Drawing) -> Args:
    return {"self": "$" + d.source("complex64", [d.a_size() for _ in range(d.rng.randint(0, 3))], "normal")}


@hint("_fft_r2c")
def real_fft(d: Drawing) -> Args:
    x = d.tensor(("float32",), (1, 2, 3))
    dims = d.rng.sample(range(d.rank(x)), d.rng.randint(1, d.rank(x)))
    return {"self": f"${x}", "dim": dims, "normalization": d.rng.randint(0, 2), "onesided": d.chance(0.8)}


@hint("_fft_c2r")
def inverse_real_fft(d: Drawing) -> Args:
    x = d.source("complex64", [d.a_size() for _ in range(d.rng.randint(1, 3))], "normal")
    dims = d.rng.sample(range(d.rank(x)), d.rng.randint(1, d.rank(x)))
    last = 2 * d.fixed(x, dims[-1]) - d.rng.choice([1, 2])
    return {"self": f"${x}", "dim": dims, "normalization": d.rng.randint(0, 2), "last_dim_size": last}


@hint("_to_dim_order_copy", "_clone_dim_order")
def dim_order(d: Drawing) -> Args:
    return {"self": "$" + d.tensor()}


def _variance(d: Drawing) -> Args:
    x = d.tensor(FLOATS)
    args: Args = {
        "self": f"${x}",
        "dim": d.rng.choice([None, d.some_dims(d.rank(x))]),
        "keepdim": d.chance(0.4),
    }
    return args


HINTS["var.out"] = lambda d: {**_variance(d), "unbiased": d.chance(0.5)}
HINTS["var.correction_out"] = lambda d: {**_variance(d), "correction": d.rng.choice([None, 0, 1, 2, 0.5])}
HINTS["var_mean.correction_out"] = HINTS["var.correction_out"]
