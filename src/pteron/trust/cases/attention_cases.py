"""Attention with and without a KV cache, for one sequence and for several, and rotary embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import NEVER_WRITTEN, Array, Draw, Position, case
from pteron.trust.cases.norm_cases import softmax

DTYPES = (np.float32, np.float16)
CAPACITY = 64
START = 11  # the position of the first query
SIZES = (40, 1, 3, 19, 7)


def attend(
    q: Array, k: Array, v: Array, seen: Array, scale: float | None = None, cap: float | None = None
) -> Array:
    """Tensors are [.., heads, rows, width]. `seen` is added to the scores."""
    groups = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, groups, -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        scores = cap * np.tanh(scores / cap)
    return softmax(scores + seen, -1) @ v


def by_sequence(*tensors: Array) -> list[Array]:
    """[B, S, H, D] as [B, H, S, D], or back."""
    return [np.swapaxes(x, 1, 2) for x in tensors]


def up_to(positions: Array, keys: int, window: int | None = None) -> Array:
    """0 for the keys that a query sees: those up to its own position. -inf for the others."""
    key = np.arange(keys)[None]
    hidden = key > positions[:, None]
    if window is not None:
        hidden |= key <= positions[:, None] - window
    return np.where(hidden, -np.inf, 0.0)


def stored(cache: Array, rows: Array, start: int) -> Array:
    cache[:, start : start + rows.shape[1]] = rows
    return cache


def cached(q: Array, keys: Array, values: Array, start: int, window: Any = None, cap: Any = None) -> Array:
    queries, k, v = by_sequence(q, keys, values)
    seen = up_to(start + np.arange(q.shape[1]), keys.shape[1], window)
    return np.swapaxes(attend(queries, k, v, seen, None, cap), 1, 2)


def tensors(d: Draw, n: int, width: int, slots: int = 1) -> list[Array]:
    """Queries, keys, values and the caches of both."""
    heads = [d.x(1, n, 4, width), d.x(1, n, 2, width), d.x(1, n, 2, width)]
    return [*heads, *(d.x(slots, CAPACITY, 2, width) for _ in range(2))]


def sdpa(q: Array, k: Array, v: Array, keys: Array, values: Array, start: int, *rest: Any) -> list[Array]:
    keys, values = stored(keys, k, start), stored(values, v, start)
    window, cap = rest[5:7] if len(rest) > 5 else (None, None)
    return [cached(q, keys, values, start, window, cap), keys, values]


for width in (32, 8, 6, 256):
    dtypes = DTYPES if width in (32, 6) else DTYPES[:1]
    sizes = SIZES if width < 256 else (9, 1)
    case("sdpa_with_kv_cache.default",
         lambda d, n, w=width: [*tensors(d, n, w), Position(START), n, None, 0.0, True, None],
         sdpa, sizes=sizes, dtypes=dtypes)  # fmt: skip
    case("custom_sdpa.default",
         lambda d, n, w=width: [
             d.x(1, n, 4, w), *(d.x(1, CAPACITY, 2, w) for _ in range(2)), Position(START), None, 0.0, True,
             None],
         lambda q, k, v, start, *_: cached(q, k, v, start), sizes=sizes, dtypes=dtypes)  # fmt: skip
case("pteron.sdpa_with_kv_cache.default",
     lambda d, n: [*tensors(d, n, 32), Position(START), n, None, 0.0, True, None, 5, 30.0], sdpa,
     sizes=SIZES)  # fmt: skip
for width in (32, 8, 6):
    case("et_vk.sdpa.default", lambda d, n, w=width: [*(d.x(2, 4, n, w) for _ in range(3)), None, None],
         lambda q, k, v, *_: attend(q, k, v, np.zeros(1)), sizes=SIZES)  # fmt: skip
case("et_vk.sdpa.default",
     lambda d, n: [*(d.x(1, 4, n, 8) for _ in range(3)), d.flags(n, n) | np.eye(n, dtype=bool), 0.5],
     lambda q, k, v, mask, scale: attend(q, k, v, np.where(mask, 0, -np.inf), scale),
     sizes=SIZES)  # fmt: skip
case("pteron.attention",
     lambda d, n: [
         d.x(2, n, 4, 8), d.x(2, 4, n, 8), d.x(2, 4, n, 8), d.f32(2, 1, n, n), 0.5, True, False, True],
     lambda q, k, v, mask, scale, *_: np.swapaxes(attend(np.swapaxes(q, 1, 2), k, v, mask, scale), 1, 2),
     sizes=SIZES, dtypes=DTYPES)  # fmt: skip

# -- rotary embeddings ---------------------------------------------------------------------------------


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


def tables(d: Draw, rows: int, width: int) -> list[Array]:
    angles = np.tile(d.f32(rows, width // 2), 2)
    return [np.cos(angles), np.sin(angles)]


case("et_vk.apply_rotary_emb.default",
     lambda d, n: [d.x(1, n, 4, 8), d.x(1, n, 2, 8), d.f32(n, 4), d.f32(n, 4)],
     lambda q, k, cos, sin: [rotated(x, cos, sin, False) for x in (q, k)], dtypes=DTYPES)  # fmt: skip
case("et_vk.apply_rotary_emb_hf.default",
     lambda d, n: [d.x(1, n, 4, 8), d.x(1, n, 2, 8), *tables(d, 16, 8), Position(5)],
     lambda q, k, cos, sin, at: [
         rotated(x, cos[at : at + x.shape[1]], sin[at : at + x.shape[1]], True) for x in (q, k)])  # fmt: skip


def interleaved(x: Array, table: Array) -> Array:
    """The table has pairs of cosine and sine."""
    return rotated(x[:, :, None], table[:, ::2], table[:, 1::2], False)[:, :, 0]


case("et_vk.apply_rotary_emb_interleaved.default", lambda d, n: [d.x(1, n, 8), d.f32(n, 8)], interleaved)


def rotary_sdpa(
    q: Array, k: Array, v: Array, cos: Array, sin: Array, row: int, keys: Array, values: Array, start: int,
    *_: Any,
) -> list[Array]:  # fmt: skip
    cos, sin = (x[row : row + q.shape[1]] for x in (cos, sin))
    turned = rotated(q, cos, sin, True)
    keys, values = stored(keys, rotated(k, cos, sin, True), start), stored(values, v, start)
    return [turned, cached(turned, keys, values, start), keys, values]


for width in (32, 6):

    def rotary_arguments(d: Draw, n: int, w: int = width) -> list[Any]:
        q, k, v, keys, values = tensors(d, n, w)
        head = [q, k, v, *tables(d, CAPACITY, w), Position(START), keys, values, Position(START)]
        return [*head, None, 0.0, True, None, None, None]

    case("pteron.rotary_sdpa_with_kv_cache", rotary_arguments, rotary_sdpa, sizes=SIZES)

# -- several sequences ---------------------------------------------------------------------------------

SLOTS = 3


def row_tables(n: int) -> list[Array]:
    """Rows of two sequences: one row of the last slot, and the others in the first slot, from START on."""
    slots = np.zeros(n, np.int32)
    positions = np.arange(START, START + n, dtype=np.int32)
    slots[-1], positions[-1] = SLOTS - 1, 20
    tiles = [(at, min(32, n - 1 - at)) for at in range(0, n - 1, 32)]
    return [slots, positions, np.array([n - 1], np.int32), np.array(tiles, np.int32).reshape(-1, 2)]


def segmented(q: Array, keys: Array, values: Array, at: Any) -> Array:
    made = np.zeros(q.shape)
    for row, (slot, position) in enumerate(zip(at[0], at[1], strict=True)):
        part = keys[slot : slot + 1], values[slot : slot + 1]
        made[:, row : row + 1] = cached(q[:, row : row + 1], *part, int(position))
    return made


def in_slots(cache: Array, rows: Array, at: Any) -> Array:
    cache[at[0], at[1]] = rows[0]
    return cache


def segmented_sdpa(q: Array, k: Array, v: Array, keys: Array, values: Array, at: Any, *_: Any) -> list[Array]:
    keys, values = in_slots(keys, k, at), in_slots(values, v, at)
    return [segmented(q, keys, values, at), keys, values]


for width in (32, 6):
    case("pteron.segmented_sdpa_with_kv_cache",
         lambda d, n, w=width: [*tensors(d, n, w, SLOTS), row_tables(n), n, None, 0.0, True, None],
         segmented_sdpa, sizes=SIZES)  # fmt: skip
    case("pteron.segmented_custom_sdpa",
         lambda d, n, w=width: [
             d.x(1, n, 4, w), *(d.x(SLOTS, CAPACITY, 2, w) for _ in range(2)), row_tables(n), None, 0.0, True,
             None],
         lambda q, k, v, at, *_: segmented(q, k, v, at), sizes=SIZES)  # fmt: skip

    def segmented_rotary(d: Draw, n: int, w: int = width) -> list[Any]:
        q, k, v, keys, values = tensors(d, n, w, SLOTS)
        head = [q, k, v, *tables(d, CAPACITY, w), row_tables(n), keys, values, row_tables(n)]
        return [*head, None, 0.0, True, None, None, None]

    def segmented_rotary_sdpa(
        q: Array, k: Array, v: Array, cos: Array, sin: Array, row: Any, keys: Array, values: Array, at: Any,
        *_: Any,
    ) -> list[Array]:  # fmt: skip
        turned = rotated(q, cos[row[1]], sin[row[1]], True)
        turned_keys = rotated(k, cos[row[1]], sin[row[1]], True)
        return [turned, *segmented_sdpa(turned, turned_keys, v, keys, values, at)]

    case("pteron.segmented_rotary_sdpa", segmented_rotary, segmented_rotary_sdpa, sizes=SIZES)
case("pteron.segmented_update_cache",
     lambda d, n: [d.x(1, n, 2, 4), d.x(SLOTS, CAPACITY, 2, 4), row_tables(n)],
     lambda x, cache, at: [NEVER_WRITTEN, in_slots(cache, x, at)])  # fmt: skip
