"""Convolutions by Winograd's algorithm: a product of matrices for each of 36 factors, between two transforms.

The filters are transformed at upload (see passes/winograd.py). The products are those of conv_tiles.py: a
convolution of single elements with a group of channels for each factor.
"""

from __future__ import annotations

from collections.abc import Mapping

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Number, Route, Scratch, Shape, numel, threads
from pteron.compiler.ir.winograd import FACTORS, TILE
from pteron.compiler.ops import products
from pteron.compiler.ops.conv_tiles import LARGE, SMALL, Tile, TiledConvolution, parts_numel
from pteron.compiler.ops.window import Window

LAYOUT = "Winograd filters"  # of weights: [inputs, 6, 6, channels]
ALL = FACTORS * FACTORS


def tiles_of(places: Shape) -> Shape:
    """The tiles that cover an image, down and across."""
    return tuple(-(-size // TILE) for size in places)


def winograd_routes(
    bindings: Mapping[str, LiveTensor], window: Window, finishing: Mapping[str, Number]
) -> list[Route]:
    """finishing: the parameters for bias and limits."""
    x, weight, out = bindings["x"], bindings["weight"], bindings["y"]
    ins, *_, outs = weight.shape
    batch = numel(out.shape[:-3])
    down, across = tiles_of(out.shape[-2:])
    tiles = batch * down * across
    most = numel(out.max_shape[:-3]) * numel(tiles_of(out.max_shape[-2:]))
    inputs = Scratch("Winograd inputs", 4 * max(ALL * ins * most, 4))
    none = dict.fromkeys(finishing, 0)
    product = TiledConvolution(
        inputs, weight, weight, inputs, Window((1,), (1,), (0,), (1,)), ALL, (ALL * ins, ALL * outs),
        1, (tiles,), (tiles,), none,
    )  # fmt: skip
    sums = Scratch("Winograd products", 4 * parts_numel(product, ALL * outs * most))
    splits = product.splits(product.gemm.elements)
    shape: dict[str, Number] = {"batch": batch, "down": down, "across": across}
    before = Dispatch(
        "winograd_input",
        {"x": x, "y": inputs},
        {
            **shape,
            "channels": ins,
            "rows": x.shape[-2],
            "columns": x.shape[-1],
            "row_padding": window.padding[0],
            "column_padding": window.padding[1],
        },
        threads(ins * tiles),
        {"OUTPUTS": False},
    )

    def route(tile: Tile, splits: int, fits: bool | None) -> Route:
        params = {
            **finishing, **shape, "channels": outs, "rows": out.shape[-2], "columns": out.shape[-1],
            "splits": splits, "stride": product.stride,
        }  # fmt: skip
        after = Dispatch(
            "winograd_output",
            {"x": sums, "bias": bindings["bias"], "y": out},
            params,
            threads(outs * tiles),
            {"OUTPUTS": True, "EPILOGUE": False},
        )
        name = "Winograd, large tiles" if tile is LARGE else "Winograd"
        return Route(name, [before, product.tile(tile, sums, splits), after], fits)

    routes = [route(SMALL, splits, None)]
    if ALL * outs * most >= products.MANY_ELEMENTS and outs > SMALL.rows:
        routes.insert(0, route(LARGE, 1, product.gemm.elements >= products.MANY_ELEMENTS))
    return routes
