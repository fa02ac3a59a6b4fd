"""Convolutions, pools and resampling of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from pteron.trust.case import Array, case

DTYPES = (np.float32, np.float16)
IMAGES = (3, 1, 2)  # live batch sizes


def taps(x: Array, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, fill: float = 0.0) -> Any:
    """The elements of all windows: for each place in a window, an array [batch, channels, windows..]."""
    pads = [(0, 0), (0, 0), *((p, p) for p in padding)]
    x = np.pad(x, pads, constant_values=fill)
    places = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    for place in product(*map(range, kernel)):
        cut = tuple(
            slice(at * d, at * d + s * (count - 1) + 1, s)
            for at, d, s, count in zip(place, dilation, stride, places, strict=True)
        )
        yield place, x[(slice(None), slice(None), *cut)]


def convolution(
    x: Array, w: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    parts = []
    outs = len(w) // groups
    for g, part in enumerate(np.split(x, groups, 1)):
        mine = w[g * outs : (g + 1) * outs]
        parts.append(
            sum(
                np.einsum("bi...,oi->bo...", cut, mine[(slice(None), slice(None), *place)])
                for place, cut in taps(part, w.shape[2:], stride, padding, dilation)
            )
        )
    made: Array = np.concatenate(parts, 1)
    return made if bias is None else made + bias.reshape(-1, *[1] * (x.ndim - 2))


def transposed_convolution(
    x: Array, w: Array, bias: Array | None, stride: Any, padding: Any, extra: Any
) -> Array:
    """Weights are [ins, outs, kernel..]."""
    full = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], stride, w.shape[2:], strict=True)]
    made = np.zeros((len(x), w.shape[1], *(n + e for n, e in zip(full, extra, strict=True))))
    for place in product(*map(range, w.shape[2:])):
        cut = tuple(
            slice(at, at + s * (n - 1) + 1, s) for at, s, n in zip(place, stride, x.shape[2:], strict=True)
        )
        made[(slice(None), slice(None), *cut)] += np.einsum(
            "bi...,io->bo...", x, w[(slice(None), slice(None), *place)]
        )
    inner = tuple(slice(p, size - p) for p, size in zip(padding, made.shape[2:], strict=True))
    made = made[(slice(None), slice(None), *inner)]
    return made if bias is None else made + bias.reshape(-1, *[1] * (x.ndim - 2))


ONES = [1, 1]
for groups, outs in ((1, 8), (4, 4), (2, 6), (1, 20)):
    case("aten.convolution.default",
         lambda d, n, g=groups, o=outs: [
             d.x(n, 4, 7, 6), d.weight(o, 4 // g, 3, 3), d.weight(o), [2, 1], ONES, ONES, False, [0, 0], g],
         lambda x, w, b, s, p, dil, _, __, g: convolution(x, w, b, s, p, dil, g),
         sizes=IMAGES, dtypes=DTYPES)  # fmt: skip
case("aten.convolution.default",
     lambda d, n: [d.x(1, 4, n), d.weight(8, 4, 3), None, [1], [1], [1], False, [0], 1],
     lambda x, w, b, s, p, dil, _, __, g: convolution(x, w, b, s, p, dil, g))  # fmt: skip
case("aten.convolution.default",
     lambda d, n: [d.x(n, 4, 5, 5), d.weight(4, 8, 2, 2), None, [2, 2], [0, 0], ONES, True, [0, 0], 1],
     lambda x, w, b, s, p, *_: transposed_convolution(x, w, b, s, p, [0, 0]), sizes=IMAGES)  # fmt: skip
case("et_vk.conv_with_clamp.default",
     lambda d, n: [
         d.x(n, 4, 6, 6), d.weight(16, 4, 1, 1), None, ONES, [0, 0], ONES, False, [0, 0], 1, 0.0, 6.0],
     lambda x, w, b, s, p, dil, _, __, g, low, high: np.clip(convolution(x, w, b, s, p, dil, g), low, high),
     sizes=IMAGES)  # fmt: skip


def packed_convolution(
    x: Array,
    w: Array,
    bias: Array,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    low: Any,
    high: Any,
) -> Array:
    """Weights are [ins / groups, kernel.., outs]."""
    made = convolution(x, np.moveaxis(w, -1, 0), bias, stride, padding, dilation, groups)
    return np.maximum(made, low)


for groups, ins, outs, window, size in (
    (1, 4, 8, 3, 6), (1, 4, 18, 1, 6), (4, 4, 4, 3, 6), (2, 4, 14, 3, 6), (1, 4, 40, 3, 7), (1, 4, 40, 3, 68),
    (1, 4, 128, 3, 3),
):  # fmt: skip
    case("pteron.packed_convolution",
         lambda d, n, g=groups, i=ins, o=outs, w=window, s=size: [
             d.x(n, i, s, s), d.weight(i // g, w, w, o), d.weight(o), ONES, [w // 2] * 2, ONES, g, 0.0, None],
         packed_convolution, sizes=IMAGES, dtypes=DTYPES if size == 6 else DTYPES[:1])  # fmt: skip

for groups, ins, outs, window, size in (
    (1, 4, 8, 3, 6), (1, 4, 18, 1, 6), (4, 4, 4, 3, 6), (1, 4, 128, 3, 3), (1, 4, 40, 3, 68),
):  # fmt: skip
    case("pteron.convolution_with_ending",
         lambda d, n, g=groups, i=ins, o=outs, w=window, s=size: [
             d.x(n, i, s, s), d.weight(i // g, w, w, o), d.weight(o), ONES, [w // 2] * 2, ONES, g, 0.0, None,
             "tanh(x)"],
         lambda *args: np.tanh(packed_convolution(*args[:-1])), sizes=IMAGES)  # fmt: skip

POOL = ([3, 2], [2, 2], [1, 1])


def pooled(join: Callable[[Array], Array], fill: float) -> Callable[..., Array]:
    def pool(x: Array, kernel: Any, stride: Any, padding: Any, *_: object) -> Array:
        return join(np.stack([cut for _, cut in taps(x, kernel, stride, padding, ONES, fill)]))

    return pool


largest = pooled(lambda cuts: cuts.max(0), -np.inf)
case("aten.max_pool2d.default", lambda d, n: [d.x(n, 3, 6, 7), *POOL, ONES, False], largest,
     sizes=IMAGES, dtypes=DTYPES)  # fmt: skip


def largest_with_places(x: Array, kernel: Any, stride: Any, *_: object) -> list[Array]:
    """Windows without padding."""
    pairs = list(taps(x, kernel, stride, [0, 0], ONES))
    cuts = np.stack([cut for _, cut in pairs])
    best = cuts.argmax(0)
    rows, columns = np.indices(best.shape[2:])
    inside = np.array([place for place, _ in pairs])[best]
    return [
        cuts.max(0),
        (rows * stride[0] + inside[..., 0]) * x.shape[3] + columns * stride[1] + inside[..., 1],
    ]


case("aten.max_pool2d_with_indices.default",
     lambda d, n: [d.x(n, 3, 6, 7), [3, 2], [2, 2], [0, 0], ONES, False], largest_with_places,
     sizes=IMAGES)  # fmt: skip
case("aten.avg_pool2d.default", lambda d, n: [d.x(n, 3, 6, 7), *POOL, False, True, None],
     pooled(lambda cuts: cuts.mean(0), 0.0), sizes=IMAGES)  # fmt: skip
case("aten._adaptive_avg_pool2d.default", lambda d, n: [d.x(n, 3, 6, 8), [2, 4]],
     lambda x, _: x.reshape(len(x), 3, 2, 3, 4, 2).mean((3, 5)), sizes=IMAGES)  # fmt: skip
case("aten.upsample_nearest2d.vec", lambda d, n: [d.x(n, 3, 4, 5), None, [2.0, 2.0]],
     lambda x, *_: x.repeat(2, 2).repeat(2, 3), sizes=IMAGES)  # fmt: skip


def interpolated(x: Array, axis: int, places: Array) -> Array:
    """Linear interpolation at places between the elements. Beyond the ends, the last element counts."""
    places = np.clip(places, 0, x.shape[axis] - 1)
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    share = (places - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share


def bilinear(x: Array, size: Sequence[int], *_: object) -> Array:
    for axis, count in zip((2, 3), size, strict=True):
        x = interpolated(x, axis, (np.arange(count) + 0.5) * x.shape[axis] / count - 0.5)
    return x


case("aten.upsample_bilinear2d.vec", lambda d, n: [d.x(n, 3, 4, 5), [9, 7], False, None], bilinear,
     sizes=IMAGES)  # fmt: skip


def sampled(x: Array, grid: Array, *_: object) -> Array:
    """Bilinear, with zeros outside, at places from -1 to 1 from edge to edge."""
    height, width = x.shape[2:]
    rows, columns = ((grid[..., i] + 1) * n / 2 - 0.5 for i, n in ((1, height), (0, width)))
    made = np.zeros((len(x), x.shape[1], *grid.shape[1:3]))
    for down, right in product((0, 1), (0, 1)):
        r, c = np.floor(rows) + down, np.floor(columns) + right
        share = (1 - np.abs(rows - r)) * (1 - np.abs(columns - c))
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        for b in range(len(x)):
            at = np.clip(r[b], 0, height - 1).astype(int), np.clip(c[b], 0, width - 1).astype(int)
            made[b] += x[b][:, at[0], at[1]] * (share[b] * inside[b])
    return made


case("aten.grid_sampler_2d.default", lambda d, n: [d.x(n, 3, 6, 5), d.x(n, 4, 5, 2), 0, 0, False], sampled,
     sizes=IMAGES)  # fmt: skip
case("aten.im2col.default", lambda d, n: [d.x(n, 3, 6, 6), [2, 2], ONES, [0, 0], [2, 2]],
     lambda x, k, dil, p, s: np.stack([cut for _, cut in taps(x, k, s, p, dil)], 2).reshape(len(x), 12, -1),
     sizes=IMAGES)  # fmt: skip
case("et_vk.grid_priors.default", lambda d, n: [d.x(1, 2, n, 5), 8, 0.5],
     lambda x, stride, offset: (
         np.indices(x.shape[-2:])[::-1].reshape(2, -1).T + offset) * stride)  # fmt: skip
