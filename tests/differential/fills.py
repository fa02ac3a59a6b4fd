"""Data for the tensors of a program: ordinary numbers, and the edges of each element type."""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from tests.differential.record import Source

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int8", "uint8", "int32", "int64")
DTYPES = (*FLOATS, *INTEGERS, "bool")


def tensor_of(source: Source, point: int) -> torch.Tensor:
    """The data of a source at a live point. The same source and point give the same data."""
    point = min(point, len(source.shapes) - 1)
    shape, dtype = source.shapes[point], getattr(torch, source.dtype)
    if source.values is not None:
        return torch.tensor(source.values[point], dtype=dtype).reshape(shape)
    rng = random.Random(f"{source.seed} {point}")
    count = math.prod(shape)
    if source.fill.startswith("unique"):
        _, low, high = source.fill.split()
        return torch.tensor(rng.sample(range(int(low), int(high)), count), dtype=dtype).reshape(shape)
    numbers = [_number(rng, source.fill, source.dtype) for _ in range(count)]
    made = torch.tensor(numbers, dtype=dtype).reshape(shape)
    return made.float().double() if source.dtype == "float64" else made  # the GPU has no float64


def _number(rng: random.Random, fill: str, dtype: str) -> Any:
    if fill.startswith("range"):
        _, low, high = fill.split()
        return rng.randrange(int(low), int(high))
    if dtype == "complex64":
        return complex(rng.gauss(0.0, 1.0), rng.gauss(0.0, 1.0))
    if dtype == "bool":
        return rng.random() < 0.5
    return _float(rng, fill, dtype) if dtype in FLOATS else _integer(rng, fill, dtype)


def _float(rng: random.Random, fill: str, dtype: str) -> float:
    # float64 is stored as float32 on the GPU, so its edges are those of float32.
    info = torch.finfo(torch.float32 if dtype == "float64" else getattr(torch, dtype))
    if fill == "edges" and rng.random() < 0.5:
        some = [math.inf, math.nan, 0.0, 1.0, 0.5, info.max, info.tiny, info.eps, 1e-3, 1e4, 100.0]
        return math.copysign(rng.choice(some), rng.random() - 0.5)
    if fill == "wide":
        reach = 4 if dtype == "float16" else 30
        return math.copysign(10 ** rng.uniform(-reach, reach), rng.random() - 0.5)
    if fill == "whole":
        return float(rng.randint(-5, 5))
    if fill == "positive":
        return rng.uniform(0.05, 3.0)
    return rng.gauss(0.0, 1.0 if fill == "normal" else 3.0)


def _integer(rng: random.Random, fill: str, dtype: str) -> int:
    info = torch.iinfo(getattr(torch, dtype))
    low, high = info.min, info.max
    if dtype == "int64" and fill != "edges":
        low, high = -(2**31), 2**31 - 1
    if fill == "edges" and rng.random() < 0.5:
        return rng.choice([low, high, 0, 1, max(low, -1), high - 1, low + 1, high // 2])
    if fill == "wide":
        return rng.randint(low, high)
    if fill == "positive":
        return rng.randint(1, 9)
    return rng.randint(max(low, -9), 9)
