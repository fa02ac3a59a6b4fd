"""Arguments for ExecuTorch's kernels of quantized programs and of attention: a function for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.differential.drawing import Drawing, Impossible
from tests.differential.hints import Args, Hint

HINTS: dict[str, Hint] = {}
CODES = (("int8", -128, 127), ("int8", -127, 127), ("int8", -8, 7), ("uint8", 0, 255), ("uint8", 0, 15))
PLAIN = ("normal", "whole", "positive")


def hint(*names: str, namespace: str = "quantized_decomposed") -> Callable[[Hint], Hint]:
    def add(function: Hint) -> Hint:
        HINTS.update({f"{namespace}::{name}": function for name in names})
        return function

    return add


def _scale(d: Drawing) -> float:
    return d.rng.choice([0.5, 0.25, 1.0, round(d.rng.uniform(0.004, 0.3), 5)])


def _range(d: Drawing, low: str = "quant_min", high: str = "quant_max") -> tuple[Args, str]:
    """The limits of codes and their type, and the fill of zero points."""
    dtype, least, most = d.rng.choice(CODES)
    return {low: least, high: most, "dtype": dtype}, f"range {least} {most + 1}"


# -- codes ---------------------------------------------------------------------------------------------


def _codes(d: Drawing, dtype: str, fill: str, ranks: tuple[int, ...] = (1, 2, 3)) -> str:
    """Codes that are given, or that a step has made."""
    known = d.tensors(lambda name: d.dtype(name) == dtype and d.rank(name) in ranks)
    if known and d.chance(0.4):
        return d.rng.choice(known)
    return d.source(dtype, [d.a_size() for _ in range(d.rng.choice(ranks))], fill)


def _of_tensor(decodes: bool, in_tensors: bool) -> Hint:
    def draw(d: Drawing) -> Args:
        limits, fill = _range(d)
        ranks = (0, 1, 2, 3)
        x = _codes(d, limits["dtype"], fill, ranks) if decodes else d.tensor(("float32",), ranks)
        zero = d.rng.randint(limits["quant_min"], limits["quant_max"])
        if not in_tensors:
            return {"input": f"${x}", "scale": _scale(d), "zero_point": zero, **limits}
        one = [[1] * d.points]
        scale, zero_point = d.source("float64", one, "positive"), d.source("int64", one, fill)
        return {"input": f"${x}", "scale": f"${scale}", "zero_point": f"${zero_point}", **limits}

    return draw


def _of_channels(decodes: bool) -> Hint:
    def draw(d: Drawing) -> Args:
        limits, fill = _range(d)
        x = _codes(d, limits["dtype"], fill) if decodes else d.tensor(("float32",), (1, 2, 3))
        axis = d.dim(d.rank(x))
        channels = [[d.fixed(x, axis)] * d.points]
        kind = d.rng.choice(["constant", "input"])
        zeros = d.source("int64", channels, fill, kind)
        scales = d.source("float64", channels, "positive", kind)
        given = None if decodes and d.chance(0.2) else f"${zeros}"
        return {"input": f"${x}", "scales": f"${scales}", "zero_points": given, "axis": axis, **limits}

    return draw


def _of_tokens(decodes: bool) -> Hint:
    def draw(d: Drawing) -> Args:
        limits, fill = _range(d)
        x = _codes(d, limits["dtype"], fill) if decodes else d.tensor(("float32",), (1, 2, 3))
        rows = [*d.dims(x)[:-1], [1] * d.points]
        args: Args = {
            "input": f"${x}",
            "scales": "$" + d.source("float64", rows, "positive", "input"),
            "zero_points": "$" + d.source("int64", rows, fill, "input"),
            **limits,
        }
        return {**args, "output_dtype": "float32"} if decodes else args

    return draw


hint("quantize_per_tensor.out")(_of_tensor(False, False))
hint("quantize_per_tensor.Tensor_out")(_of_tensor(False, True))
hint("quantize_per_channel.out")(_of_channels(False))
hint("quantize_per_token.out")(_of_tokens(False))


def _decoding(of: Hint) -> Hint:
    def draw(d: Drawing) -> Args:
        args = of(d)
        return {**args, "out_dtype": d.rng.choice([None, "float32"])} if d.chance(0.5) else args

    return draw


hint("dequantize_per_tensor.out")(_decoding(_of_tensor(True, False)))
hint("dequantize_per_tensor.Tensor_out")(_decoding(_of_tensor(True, True)))
hint("dequantize_per_channel.out")(_decoding(_of_channels(True)))
hint("dequantize_per_token.out")(_of_tokens(True))


@hint("choose_qparams.Tensor_out")
def choose_qparams(d: Drawing) -> Args:
    limits, _ = _range(d)
    x = d.tensor(("float32",), (0, 1, 2, 3), fill=d.rng.choice(PLAIN))
    return {"input": f"${x}", **limits, "eps": d.rng.choice([1e-5, 1.1920928955078125e-07])}


@hint("choose_qparams_per_token_asymmetric.out")
def choose_qparams_per_token(d: Drawing) -> Args:
    return {"input": "$" + d.tensor(("float32",), (2, 3), fill=d.rng.choice(PLAIN)), "dtype": "int8"}


def _embedding(bits: int, takes_dtype: bool) -> Hint:
    def draw(d: Drawing) -> Args:
        rows, of_byte = d.rng.choice([3, 7, 16]), 8 // bits
        groups, width = d.rng.choice([1, 1, 2, 4]), d.rng.choice([4, 8, 16, 32])
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        stored, fill = ("int8", "range -128 128") if bits == 8 else ("uint8", "range 0 256")

        def constant(dtype: str, *shape: int, fill: str) -> str:
            return "$" + d.source(dtype, [[n] * d.points for n in shape], fill, "constant")

        scales_of = (rows,) if groups == 1 and d.chance(0.5) else (rows, groups)
        dtype = d.rng.choice(["float32", "float32", "float16"])
        args: Args = {
            "weight": constant(stored, rows, groups * width // of_byte, fill=fill),
            "weight_scales": constant(dtype, *scales_of, fill="positive"),
            "weight_zero_points": constant(dtype, *scales_of, fill="whole") if d.chance(0.4) else None,
            "weight_quant_min": low,
            "weight_quant_max": high,
            "indices": "$" + d.index([d.a_size() for _ in range(d.rng.choice([1, 1, 2]))], rows),
        }
        return {**args, "dtype": d.rng.choice(["float32", "float16"])} if takes_dtype else args

    return draw


for _bits, _name in ((2, "2bit"), (4, "4bit"), (8, "byte")):
    hint(f"embedding_{_name}.out")(_embedding(_bits, False))
    hint(f"embedding_{_name}.dtype_out")(_embedding(_bits, True))


# -- attention -----------------------------------------------------------------------------------------


class _Heads:
    """The sizes of a call: new rows, capacity of the cache, and where the rows begin."""

    def __init__(self, d: Drawing) -> None:
        self.d = d
        self.batch = [d.rng.choice([1, 1, 1, 2])] * d.points
        self.rows = d.a_size()
        self.shared = d.rng.choice([1, 2])
        self.heads = self.shared * d.rng.choice([1, 2, 3])
        self.width = d.rng.choice([4, 8, 8, 16, 6])
        most = max(self.rows)
        if not min(self.rows):
            raise Impossible
        self.start = d.rng.choice([0, 0, 1, 3, 7])
        self.capacity = self.start + most + d.rng.choice([0, 1, 5])

    def tensor(
        self, length: list[int], heads: int, kind: str | None = "input", dtype: str = "float32"
    ) -> str:
        d = self.d
        dims = [self.batch, length, [heads] * d.points, [self.width] * d.points]
        return d.source(dtype, dims, d.rng.choice(PLAIN), kind)

    def cache(self, kind: str = "buffer") -> str:
        return self.tensor([self.capacity] * self.d.points, self.shared, kind)

    def at(self) -> Any:
        """A constant, or the size of an input."""
        if self.start and self.d.chance(0.4):
            extra = self.d.source("float32", [[self.start] * self.d.points], "normal", "input")
            return "$" + self.d.step("aten::sym_size.int", {"self": f"${extra}", "dim": 0})[0]
        return self.start

    def rest(self) -> Args:
        d, args = self.d, {}
        how = d.rng.randrange(3)
        if how == 0:
            mask = d.source("float32", [self.rows, [self.capacity] * d.points], "normal", "input")
            args["attn_mask"] = f"${mask}"
        elif how == 1:
            args["is_causal"] = True
        if d.chance(0.3):
            args["scale"] = d.rng.choice([0.25, 0.5, 1.0])
        return args


@hint("custom_sdpa.out", namespace="llama")
def custom_sdpa(d: Drawing) -> Args:
    h = _Heads(d)
    parts = {"query": h.tensor(h.rows, h.heads), "key": h.cache("input"), "value": h.cache("input")}
    return {**{name: f"${x}" for name, x in parts.items()}, "start_pos": h.at(), **h.rest()}


@hint("sdpa_with_kv_cache.out", namespace="llama")
def sdpa_with_kv_cache(d: Drawing) -> Args:
    h = _Heads(d)
    new = {"query": h.heads, "key": h.shared, "value": h.shared}
    args: Args = {name: "$" + h.tensor(h.rows, heads) for name, heads in new.items()}
    args |= {name: "$" + h.cache() for name in ("key_cache", "value_cache")}
    return {**args, "start_pos": h.at(), "seq_len": d.size(args["query"][1:], 1), **h.rest()}


@hint("update_cache.out", namespace="llama")
def update_cache(d: Drawing) -> Args:
    h = _Heads(d)
    return {"value": "$" + h.tensor(h.rows, h.shared), "cache": "$" + h.cache(), "start_pos": h.at()}


@hint("update_cache_with_indices.out", namespace="llama")
def update_cache_with_indices(d: Drawing) -> Args:
    args = update_cache(d)
    batch, rows, *_ = d.dims(args["value"][1:])
    if max(batch) > 1:  # ExecuTorch wants a row of indices for each sequence
        raise Impossible
    capacity = d.sizes(args["cache"][1:], 1)[0]
    return {**args, "indices": "$" + d.index([batch, rows], capacity, unique=True)}


@hint("custom_quantized_sdpa.out", namespace="llama")
def custom_quantized_sdpa(d: Drawing) -> Args:
    h = _Heads(d)
    args: Args = {}
    rows_last = d.chance(0.3)
    for name, length, heads in (
        ("query", h.rows, h.heads),
        ("key", [h.capacity] * d.points, h.shared),
        ("value", [h.capacity] * d.points, h.shared),
    ):
        dims = [h.batch, length, [heads] * d.points]
        if rows_last:
            dims[1:] = dims[2:0:-1]
        codes = d.source("int8", [*dims, [h.width] * d.points], "range -128 128", "input")
        zeros = d.source("int8", [*dims, [1] * d.points], "range -9 10", "input")
        numbers = d.source("float32", [*dims, [1] * d.points], "positive", "input")
        scale = d.step("aten::mul.Scalar_out", {"self": f"${numbers}", "other": 1 / 64})[0]
        letter = name[0]
        args |= {name: f"${codes}", f"{letter}_zero_points": f"${zeros}", f"{letter}_scales": f"${scale}"}
    if rows_last:
        args["is_seq_at_dim_2"] = True
    return {**args, "start_pos": h.at(), **h.rest()}


@hint("fast_hadamard_transform.out", namespace="llama")
def hadamard(d: Drawing) -> Args:
    width = d.rng.choice([1, 2, 4, 8, 16, 32, 28, 56])
    dims = [d.a_size() for _ in range(d.rng.randint(0, 2))]
    return {"mat": "$" + d.source("float32", [*dims, [width] * d.points], d.rng.choice(PLAIN), "input")}


def _delta_rule(of_channels: bool) -> Hint:
    def draw(d: Drawing) -> Args:
        first, shared = ([d.rng.choice([1, 2])] * d.points for _ in range(2))
        keys, values = ([d.rng.choice([1, 3, 4, 6])] * d.points for _ in range(2))
        queries = [n * d.rng.choice([1, 2]) for n in shared[:1]] * d.points  # heads of a group share keys
        heads = first, shared, d.a_size()

        def tensor(*dims: list[int], fill: str = "normal") -> str:
            return d.source("float32", dims, fill, "input")

        def small(*dims: list[int], fill: str = "normal") -> str:
            x = tensor(*dims, fill=fill)
            return d.step("aten::mul.Scalar_out", {"self": f"${x}", "other": 0.3})[0]

        made = {
            "query": tensor(first, queries, heads[2], keys),
            "key": small(*heads, keys),
            "value": tensor(*heads, values),
            "decay": small(*heads, *([keys] if of_channels else []), fill="positive"),
            "beta": small(*heads, fill="positive"),
            "initial_state": tensor(first, shared, keys, values),
        }
        return {name: f"${x}" for name, x in made.items()}

    return draw


hint("gated_delta_rule.out", namespace="llama")(_delta_rule(False))
hint("channelwise_gated_delta_rule.out", namespace="llama")(_delta_rule(True))
