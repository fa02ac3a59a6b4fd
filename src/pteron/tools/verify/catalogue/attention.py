"""Attention with and without a KV cache, for one sequence and for several, and rotary embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.catalogue.arguments import Array, B, F, I, Position, Q, T, X, exactly, whole
from pteron.tools.verify.catalogue.entry import GENERAL, NEVER_WRITTEN, case, sample
from pteron.tools.verify.catalogue.norms import softmax
from pteron.tools.verify.catalogue.types import F32, HALVES

CAPACITY = 64
START = 11  # the position of the first query
SIZES = (40, 1, 3, 19, 7)
WIDTHS = (32, 8, 6, 256)  # 256 is the widest that fits into workgroup memory
PLAIN: tuple[Any, ...] = (None, 0.0, True, None)  # no mask, no dropout, causal, the usual scale
WINDOWED = (*PLAIN, 5, 30.0)

# -- references --------------------------------------------------------------------------------------


def attend(
    q: Array, k: Array, v: Array, seen: Array, scale: float | None = None, cap: float | None = None
) -> Array:
    """Tensors are [.., heads, rows, width]. `seen` is added to the scores."""
    groups = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, groups, -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap:
        scores = cap * np.tanh(scores / cap)
    return softmax(scores + seen, -1) @ v


def stored(cache: Array, rows: Array, start: int) -> Array:
    cache[:, start : start + rows.shape[1]] = rows
    return cache


def at_places(cache: Array, rows: Array, places: Array) -> Array:
    cache[np.arange(len(cache))[:, None], places] = rows
    return cache


def cached(
    q: Array, keys: Array, values: Array, start: int, mask: Array | None = None, dropout: float = 0.0,
    causal: bool = True, scale: float | None = None, window: int | None = None, cap: float | None = None,
) -> Array:  # fmt: skip
    """Row i is at position `start + i`. It sees the keys up to its own; with a mask, those of the mask."""
    row, key = start + np.arange(q.shape[1])[:, None], np.arange(keys.shape[1])[None]
    hidden = key > (row if causal else np.inf if mask is not None else row[-1:])
    if window:
        hidden = hidden | (key <= row - window)
    seen = np.where(hidden, -np.inf, 0.0 if mask is None else mask)
    queries, k, v = (np.swapaxes(x, 1, 2) for x in (q, keys, values))
    return np.swapaxes(attend(queries, k, v, seen, scale, cap), 1, 2)


def sdpa(
    q: Array, k: Array, v: Array, keys: Array, values: Array, start: int, length: int, *options: Any,
    held: DType = DType.float32,
) -> list[Array]:  # fmt: skip
    """The caches hold values of a shorter type: new rows are rounded to it before they are read."""
    if held is DType.float16:
        k, v = k.astype(np.float16), v.astype(np.float16)
    keys, values = stored(keys, k, start), stored(values, v, start)
    return [cached(q, keys, values, start, *options), keys, values]


GENERAL.update(
    {
        "sdpa_with_kv_cache.default": sdpa,
        "pteron.sdpa_with_kv_cache.default": sdpa,
        "custom_sdpa.default": cached,
        "update_cache.default": lambda x, cache, start: [NEVER_WRITTEN, stored(cache, x, start)],
        "update_cache_with_indices.default": lambda x, cache, _, places: [
            NEVER_WRITTEN,
            at_places(cache, x, places),
        ],
    }
)


# -- one sequence ------------------------------------------------------------------------------------


def heads(n: int, width: int) -> list[T]:
    """Queries, keys and values."""
    return [X(1, n, 4, width), X(1, n, 2, width), X(1, n, 2, width)]


def caches(width: int, slots: int = 1) -> list[T]:
    return [X(slots, CAPACITY, 2, width)] * 2


for width in WIDTHS:
    tried: tuple[DType, ...] = HALVES if width in (32, 6) else F32
    sizes = SIZES if width < 256 else (9, 1)
    case("sdpa_with_kv_cache", lambda n, w=width: [*heads(n, w), *caches(w), Position(START), n, *PLAIN],
         sdpa, tried=tried, sizes=sizes)  # fmt: skip
    case("custom_sdpa", lambda n, w=width: [X(1, n, 4, w), *caches(w), Position(START), *PLAIN],
         cached, tried=tried, sizes=sizes)  # fmt: skip
    case("pteron.sdpa_with_kv_cache", lambda n, w=width: [*heads(n, w), *caches(w), Position(START), n,
         *WINDOWED], sdpa, tried=F32 if width == 32 else (), sizes=sizes)  # fmt: skip
    case("et_vk.sdpa", lambda n, w=width: [*[X(2, 4, n, w)] * 3, None, None],
         lambda q, k, v, *_: attend(q, k, v, np.zeros(1)), tried=F32 if width < 256 else (),
         sizes=sizes)  # fmt: skip
wide = 224  # fits into workgroup memory in another way
sample("sdpa_with_kv_cache", lambda n: [
    *heads(n, wide), *caches(wide), Position(), n, *PLAIN, X(1, n, 4, wide)])  # fmt: skip
sample("pteron.sdpa_with_kv_cache", lambda n: [
    *heads(n, wide), *caches(wide), Position(), n, *WINDOWED, X(1, n, 4, wide)])  # fmt: skip
sample("custom_sdpa", lambda n: [X(1, n, 4, wide), *caches(wide), Position(), *PLAIN, X(1, n, 4, wide)])
sample("et_vk.sdpa", lambda n: [*[X(1, 4, n, wide)] * 3, None, None, X(1, 4, n, wide)])
sample("sdpa_with_kv_cache", lambda n: [  # caches of another type
    *heads(n, 32), *[T((1, CAPACITY, 2, 32), DType.float16)] * 2, Position(), n, *PLAIN,
    X(1, n, 4, 32)])  # fmt: skip


def some_keys(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A mask in which each query sees at least one key."""
    return random.integers(0, 2, shape) | np.eye(*shape, dtype=np.int64)


case("et_vk.sdpa", lambda n: [*[X(1, 4, n, 8)] * 3, B(n, n, draw=some_keys), 0.5],
     lambda q, k, v, mask, scale: attend(q, k, v, np.where(mask, 0, -np.inf), scale),
     sizes=SIZES)  # fmt: skip
sample("et_vk.sdpa", lambda n: [*[X(1, 4, n, 8)] * 3, F(n, n), 0.5, X(1, 4, n, 8)])
case("et_vk.gemma4_sdpa",
     lambda n: [X(1, n, 4, 8), *caches(8), Position(START), F(n, CAPACITY), 0.0, False, 1.0],
     cached, sizes=SIZES)  # fmt: skip
case("pteron.attention",
     lambda n: [X(2, n, 4, 8), X(2, 4, n, 8), X(2, 4, n, 8), F(2, 1, n, n), 0.5, True, False, True],
     lambda q, k, v, mask, scale, *_: np.swapaxes(attend(np.swapaxes(q, 1, 2), k, v, mask, scale), 1, 2),
     tried=HALVES, sizes=SIZES)  # fmt: skip
sample("pteron.attention", lambda n: [
    *[X(2, 4, n, 8)] * 3, F(2, 1, n, n), 0.5, False, False, True, X(2, 4, n, 8)])  # fmt: skip

# -- rotary embeddings -------------------------------------------------------------------------------


def rotated(x: Array, cos: Array, sin: Array, halves: bool) -> Array:
    """x [B, S, H, D]. The tables have a row for each of the S rows."""
    cos, sin = cos[:, None], sin[:, None]
    made = x.copy()
    if halves:
        size = cos.shape[-1]
        first, second = x[..., : size // 2], x[..., size // 2 : size]
        made[..., :size] = x[..., :size] * cos + np.concatenate([-second, first], -1) * sin
        return made
    made[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    made[..., 1::2] = x[..., ::2] * sin + x[..., 1::2] * cos
    return made


def tables(rows: int, width: int) -> list[T]:
    """Cosines and sines. Both halves of a row are the same."""

    def halves(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.tile(random.uniform(-1, 1, (shape[0], shape[1] // 2)), 2)

    return [F(rows, width, draw=halves)] * 2


def interleaved(x: Array, table: Array) -> Array:
    """The table has pairs of cosine and sine."""
    return rotated(x[:, :, None], table[:, ::2], table[:, 1::2], False)[:, :, 0]


def rotated_at(x: Array, cos: Array, sin: Array, at: int) -> Array:
    rows = slice(at, at + x.shape[1])
    return rotated(x, cos[rows], sin[rows], True)


case("et_vk.apply_rotary_emb", lambda n: [*heads(n, 8)[:2], F(n, 4), F(n, 4)],
     lambda q, k, cos, sin: [rotated(x, cos, sin, False) for x in (q, k)], tried=HALVES)  # fmt: skip
case("et_vk.apply_rotary_emb_hf", lambda n: [*heads(n, 8)[:2], *tables(16, 8), Position(5)],
     lambda q, k, *rest: [rotated_at(x, *rest) for x in (q, k)])  # fmt: skip
case("et_vk.apply_rotary_emb_hf_single", lambda n: [X(1, n, 4, 8), *tables(16, 8), Position(5)],
     rotated_at)  # fmt: skip
sample("et_vk.apply_rotary_emb_hf", lambda n: [
    X(2, 4, n, 8), X(2, 2, n, 8), F(2, n, 6), F(2, n, 6), 0, [X(2, 4, n, 8), X(2, 2, n, 8)]])  # fmt: skip
case("et_vk.apply_rotary_emb_interleaved", lambda n: [X(1, n, 8), F(n, 8)], interleaved)


def rotary_sdpa(
    q: Array, k: Array, v: Array, cos: Array, sin: Array, row: int, keys: Array, values: Array, start: int,
    *_: Any,
) -> list[Array]:  # fmt: skip
    cos, sin = (x[row : row + q.shape[1]] for x in (cos, sin))
    turned = rotated(q, cos, sin, True)
    keys, values = stored(keys, rotated(k, cos, sin, True), start), stored(values, v, start)
    return [turned, cached(turned, keys, values, start), keys, values]


for width in (32, 6):
    case("pteron.rotary_sdpa_with_kv_cache",
         lambda n, w=width: [
             *heads(n, w), *tables(CAPACITY, w), Position(START), *caches(w), Position(START), *PLAIN,
         None, None], rotary_sdpa, sizes=SIZES)  # fmt: skip
sample("pteron.rotary_sdpa_with_kv_cache", lambda n: [
    *heads(n, 8), *tables(9, 4), None, *caches(8), Position(), *PLAIN, None, None,
    [X(1, n, 4, 8), X(1, n, 4, 8)]])  # fmt: skip

# -- several sequences -------------------------------------------------------------------------------

SLOTS = 3


def row_tables(n: int) -> list[T]:
    """Rows of two sequences: one row of the last slot, and the others in the first slot, from START on."""
    slots = np.zeros(n, np.int32)
    positions = np.arange(START, START + n, dtype=np.int32)
    slots[-1], positions[-1] = SLOTS - 1, 20
    tiles = [(at, min(32, n - 1 - at)) for at in range(0, n - 1, 32)]
    made = [slots, positions, np.array([n - 1]), np.array(tiles, np.int32).reshape(-1, 2)]
    return [I(*table.shape, draw=exactly(table)) for table in made]


def segmented(q: Array, keys: Array, values: Array, at: Any, *options: Any) -> Array:
    made = np.zeros(q.shape)
    for row, (slot, position) in enumerate(zip(at[0], at[1], strict=True)):
        part = keys[slot : slot + 1], values[slot : slot + 1]
        made[:, row : row + 1] = cached(q[:, row : row + 1], *part, int(position), *PLAIN, *options)
    return made


def in_slots(cache: Array, rows: Array, at: Any) -> Array:
    cache[at[0], at[1]] = rows[0]
    return cache


def segmented_sdpa(
    q: Array, k: Array, v: Array, keys: Array, values: Array, at: Any, *rest: Any
) -> list[Array]:
    keys, values = in_slots(keys, k, at), in_slots(values, v, at)
    return [segmented(q, keys, values, at, *rest[5:7]), keys, values]


def segmented_rotary_sdpa(
    q: Array, k: Array, v: Array, cos: Array, sin: Array, row: Any, keys: Array, values: Array, at: Any,
    *_: Any,
) -> list[Array]:  # fmt: skip
    turned, turned_keys = (rotated(x, cos[row[1]], sin[row[1]], True) for x in (q, k))
    return [turned, *segmented_sdpa(turned, turned_keys, v, keys, values, at)]


for width in WIDTHS:
    tried = F32 if width in (32, 6) else ()
    sizes = SIZES if width < 256 else (9, 1)
    case("pteron.segmented_sdpa_with_kv_cache",
         lambda n, w=width: [*heads(n, w), *caches(w, SLOTS), row_tables(n), n, *PLAIN], segmented_sdpa,
         tried=tried, sizes=sizes)  # fmt: skip
    case("pteron.segmented_windowed_sdpa",
         lambda n, w=width: [*heads(n, w), *caches(w, SLOTS), row_tables(n), n, *WINDOWED], segmented_sdpa,
         tried=(), sizes=sizes)  # fmt: skip
    case("pteron.segmented_custom_sdpa",
         lambda n, w=width: [X(1, n, 4, w), *caches(w, SLOTS), row_tables(n), *PLAIN],
         lambda q, k, v, at, *_: segmented(q, k, v, at), tried=tried, sizes=sizes)  # fmt: skip
for width in (32, 6):
    case("pteron.segmented_rotary_sdpa",
         lambda n, w=width: [
             *heads(n, w), *tables(CAPACITY, w), row_tables(n), *caches(w, SLOTS), row_tables(n), *PLAIN,
         None, None], segmented_rotary_sdpa, sizes=SIZES)  # fmt: skip
sample("pteron.segmented_rotary_sdpa", lambda n: [
    *heads(n, 8), F(n, 4), F(n, 4), None, *caches(8, SLOTS), row_tables(n), *PLAIN, None, None,
    [X(1, n, 4, 8), X(1, n, 4, 8)]])  # fmt: skip
sample("pteron.segmented_rotary_emb_hf", lambda n: [
    *heads(n, 8)[:2], F(16, 8), F(16, 8), row_tables(n), [X(1, n, 4, 8), X(1, n, 2, 8)]])  # fmt: skip
case("pteron.segmented_update_cache", lambda n: [X(1, n, 2, 4), X(SLOTS, CAPACITY, 2, 4), row_tables(n)],
     lambda x, cache, at: [NEVER_WRITTEN, in_slots(cache, x, at)])  # fmt: skip

# -- caches of codes ---------------------------------------------------------------------------------


def coded(*shape: int) -> list[T]:
    """Codes, and a zero point and a scale for each row."""
    rows = (*shape[:-1], 1)
    small = lambda random, shape: random.standard_normal(shape) / 64  # noqa: E731
    return [Q(*shape), T(rows, DType.int8, draw=whole(-9, 9)), F(*rows, draw=small)]


def quantized_operands(n: int, slots: int, at: Any) -> list[Any]:
    made = [coded(1, n, 4, 8), coded(slots, CAPACITY, 2, 8), coded(slots, CAPACITY, 2, 8)]
    codes, rest = [x[0] for x in made], [part for x in made for part in x[1:]]
    return [*codes, at, *PLAIN, *rest, False]


def decoded(args: Any) -> list[Array]:
    """The queries, keys and values. With True as the last argument, dimension 2 is the sequence."""
    parts = args[8:14]
    made = [(x.astype(np.float64) - parts[2 * i]) * parts[2 * i + 1] for i, x in enumerate(args[:3])]
    return [np.swapaxes(x, 1, 2) for x in made] if args[14] else made


def quantized_sdpa(*args: Any) -> Array:
    made = cached(*decoded(args), *args[3:8])
    return np.swapaxes(made, 1, 2) if args[14] else made


GENERAL["custom_quantized_sdpa.default"] = quantized_sdpa
case("custom_quantized_sdpa", lambda n: quantized_operands(n, 1, Position(START)), quantized_sdpa, F32,
     sizes=SIZES)  # fmt: skip
case("pteron.segmented_custom_quantized_sdpa", lambda n: quantized_operands(n, SLOTS, row_tables(n)),
     lambda *args: segmented(*decoded(args), args[3]), F32, sizes=SIZES)  # fmt: skip
