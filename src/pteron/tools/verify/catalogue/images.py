"""Convolutions, pools and resampling of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from pteron.compiler.ir.winograd import FILTERS
from pteron.compiler.ops import winograd
from pteron.tools.verify.catalogue.arguments import Array, I, T, W, X
from pteron.tools.verify.catalogue.entry import case, sample, variants
from pteron.tools.verify.catalogue.types import ANY, F32, HALVES, NUMBERS

IMAGES = (3, 1, 2)  # live batch sizes
ONES = [1, 1]

# -- convolutions ------------------------------------------------------------------------------------


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


def plain(x: Array, w: Array, b: Any, stride: Any, padding: Any, dilation: Any, *rest: Any) -> Array:
    return convolution(x, w, b, stride, padding, dilation, rest[2])


for groups, outs in ((1, 8), (4, 4), (2, 6), (1, 20)):
    case("convolution",
         lambda n, g=groups, o=outs: [
             X(n, 4, 7, 6), W(o, 4 // g, 3, 3), W(o), [2, 1], ONES, ONES, False, [0, 0], g],
         plain, tried=HALVES, sizes=IMAGES)  # fmt: skip
case("convolution", lambda n: [X(1, 4, n), W(8, 4, 3), None, [1], [1], [1], False, [0], 1], plain)
case("convolution", lambda n: [X(n, 4, 5, 5), W(4, 8, 2, 2), None, [2, 2], [0, 0], ONES, True, [0, 0], 1],
     lambda x, w, b, s, p, *_: transposed_convolution(x, w, b, s, p, [0, 0]), sizes=IMAGES)  # fmt: skip
for outs, size in ((8, 6), (16, 105)):
    case("et_vk.conv_with_clamp",
         lambda n, o=outs, s=size: [
             X(n, 4, s, s), W(o, 4, 1, 1), None, ONES, [0, 0], ONES, False, [0, 0], 1, 0.0, 6.0],
         lambda *args: np.clip(plain(*args), *args[-2:]), tried=F32 if outs == 16 else (),
         sizes=IMAGES)  # fmt: skip


def packed_convolution(x: Array, w: Array, bias: Array, *rest: Any) -> Array:
    """Weights are [ins / groups, kernel.., outs]. The smallest output is the one before the last argument."""
    return np.maximum(convolution(x, np.moveaxis(w, -1, 0), bias, *rest[:4]), rest[4])


for groups, ins, outs, window, size in (
    (1, 4, 8, 3, 6), (1, 4, 18, 1, 6), (4, 4, 4, 3, 6), (2, 4, 14, 3, 6), (1, 4, 40, 3, 7), (1, 4, 40, 3, 68),
    (1, 4, 128, 3, 3), (1, 32, 20, 3, 5),
):  # fmt: skip

    def image(
        n: int, g: int = groups, i: int = ins, o: int = outs, w: int = window, s: int = size
    ) -> list[Any]:
        return [X(n, i, s, s), W(i // g, w, w, o), W(o), ONES, [w // 2] * 2, ONES, g, 0.0, None]

    case("pteron.packed_convolution", image, packed_convolution, tried=HALVES if size == 6 else F32,
         sizes=IMAGES)  # fmt: skip
    if size != 7 and groups != 2:
        case("pteron.convolution_with_epilogue", lambda n, image=image: [*image(n), "tanh(x)"],
             lambda *args: np.tanh(packed_convolution(*args)), F32, sizes=IMAGES)  # fmt: skip

# Winograd's transforms of inputs and of products. The filters are already transformed.
WINOGRAD_INPUTS = np.array([
    [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
])  # fmt: skip
WINOGRAD_RESULTS = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
)


def winograd_convolution(x: Array, w: Array, bias: Array, *rest: Any) -> Array:
    """By windows of 3 x 3, with padding of 1."""
    rows, columns = (-(-size // 4) * 4 for size in x.shape[2:])
    inner = [(1, 1 + new - old) for new, old in zip((rows, columns), x.shape[2:], strict=True)]
    image = np.pad(x, [(0, 0), (0, 0), *inner])
    made = np.zeros((len(x), w.shape[-1], rows, columns))
    for top, left in product(range(0, rows, 4), range(0, columns, 4)):
        tile = WINOGRAD_INPUTS @ image[..., top : top + 6, left : left + 6] @ WINOGRAD_INPUTS.T
        products = np.einsum("bitu,ituo->botu", tile, w)
        made[..., top : top + 4, left : left + 4] = WINOGRAD_RESULTS @ products @ WINOGRAD_RESULTS.T
    results: Array = made[..., : x.shape[2], : x.shape[3]] + bias.reshape(-1, 1, 1)
    return np.maximum(results, rest[4])


def winograd_filters(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Filters whose results are near 1."""
    ins, _, _, outs = shape
    taps = random.standard_normal((ins, 3, 3, outs)) / (3 * ins**0.5)
    factors: Array = np.asarray(FILTERS)
    return np.einsum("ta,ub,iabo->ituo", factors, factors, taps)


for outs, size in ((40, 6), (49, 43)):

    def large_image(n: int, o: int = outs, s: int = size) -> list[Any]:
        filters = T((36, 6, 6, o), fixed=True, draw=winograd_filters, layout=winograd.LAYOUT)
        return [X(n, 36, s, s + 1), filters, W(o), ONES, ONES, ONES, 1, 0.0, None]

    case("pteron.packed_convolution", large_image, winograd_convolution, F32, sizes=IMAGES)
    case("pteron.convolution_with_epilogue", lambda n, image=large_image: [*image(n), "tanh(x)"],
         lambda *args: np.tanh(winograd_convolution(*args)), F32, sizes=IMAGES)  # fmt: skip

# -- pools -------------------------------------------------------------------------------------------

POOL = ([3, 2], [2, 2], [1, 1])


def pooled(join: Callable[[Array], Array], fill: float) -> Callable[..., Array]:
    def pool(x: Array, kernel: Any, stride: Any, padding: Any, *_: object) -> Array:
        return join(np.stack([cut for _, cut in taps(x, kernel, stride, padding, ONES, fill)]))

    return pool


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


case("max_pool2d", lambda n: [X(n, 3, 6, 7), *POOL, ONES, False], pooled(lambda cuts: cuts.max(0), -np.inf),
     tried=HALVES, sizes=IMAGES)  # fmt: skip
case("max_pool2d_with_indices", lambda n: [X(n, 3, 6, 7), [3, 2], [2, 2], [0, 0], ONES, False],
     largest_with_places, sizes=IMAGES)  # fmt: skip
case("avg_pool2d", lambda n: [X(n, 3, 6, 7), *POOL, False, True, None],
     pooled(lambda cuts: cuts.mean(0), 0.0), sizes=IMAGES)  # fmt: skip
case("_adaptive_avg_pool2d", lambda n: [X(n, 3, 6, 8), [2, 4]],
     lambda x, _: x.reshape(len(x), 3, 2, 3, 4, 2).mean((3, 5)), sizes=IMAGES)  # fmt: skip
sample("adaptive_avg_pool1d", lambda n: [X(n, 3, 6), [2], X(n, 3, 2)])
sample("adaptive_avg_pool2d", lambda n: [X(n, 3, 6, 6), [2, 2], X(n, 3, 2, 2)])
sample("_adaptive_avg_pool3d", lambda n: [X(n, 3, 6, 6, 6), [2, 2, 2], X(n, 3, 2, 2, 2)])
for d in (1, 2, 3):
    full, half, twos, zeros = [6] * d, [3] * d, [2] * d, [0] * d
    sample(f"adaptive_max_pool{d}d", lambda n, s=full, w=twos: [X(n, 3, *s), w, [X(n, 3, *w), I(n, 3, *w)]])
    if d != 2:
        sample(f"max_pool{d}d", lambda n, s=full, h=half, w=twos, z=zeros: [
            X(n, 3, *s), w, w, z, [1] * len(w), False, X(n, 3, *h)])  # fmt: skip
        sample(f"max_pool{d}d_with_indices", lambda n, s=full, h=half, w=twos, z=zeros: [
            X(n, 3, *s), w, w, z, [1] * len(w), False, [X(n, 3, *h), I(n, 3, *h)]])  # fmt: skip
        sample(f"avg_pool{d}d", lambda n, s=full, h=half, w=twos, z=zeros: [
            X(n, 3, *s), w, w, z, False, True, *[None] * (len(w) > 1), X(n, 3, *h)])  # fmt: skip

# -- resampling --------------------------------------------------------------------------------------


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


def patches(x: Array, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    cuts = [cut for _, cut in taps(x, kernel, stride, padding, dilation)]
    return np.stack(cuts, 2).reshape(len(x), 12, -1)


case("upsample_nearest2d.vec", lambda n: [X(n, 3, 4, 5), None, [2.0, 2.0]],
     lambda x, *_: x.repeat(2, 2).repeat(2, 3), NUMBERS, sizes=IMAGES)  # fmt: skip
case("upsample_bilinear2d.vec", lambda n: [X(n, 3, 4, 5), [9, 7], False, None], bilinear, sizes=IMAGES)
case("grid_sampler_2d", lambda n: [X(n, 3, 6, 5), X(n, 4, 5, 2), 0, 0, False], sampled, sizes=IMAGES)
case("im2col", lambda n: [X(n, 3, 6, 6), [2, 2], ONES, [0, 0], [2, 2]], patches, ANY, sizes=IMAGES)
case("et_vk.grid_priors", lambda n: [X(1, 2, n, 5), 8, 0.5],
     lambda x, stride, offset: (
         (np.indices(x.shape[-2:])[::-1].reshape(2, -1).T + offset) * stride).astype(np.float32))  # fmt: skip
RESIZINGS = "upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
sample(variants(RESIZINGS, "vec"), lambda n: [X(n, 3, 4, 4), [8, 8], False, None, X(n, 3, 8, 8)])
sample(RESIZINGS, lambda n: [X(n, 3, 4, 4), [8, 8], True, None, 2.0, X(n, 3, 8, 8)])
