"""The rows of the table, and the input arrays of every side. Needs only numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from benchmarks import models

Array: TypeAlias = np.ndarray[Any, Any]

GROUP = 32  # weights that share a scale, in the 4-bit rows
EPSILON = 1e-5


class Unsupported(Exception):
    """A side does not support a row. The message says why."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    kind: str  # linear, linear_q4, rms_norm, attention, llm, model, or texts
    sizes: dict[str, int]
    first_calls: tuple[int, ...] = ()  # new live row counts: the row measures the worst first call


ROWS = (
    Row("f32 matmul 512×512×512", "linear", {"m": 512, "k": 512, "n": 512}),
    Row("f32 matmul 128×2048×2048", "linear", {"m": 128, "k": 2048, "n": 2048}),
    Row("4-bit linear 1×2048×2048", "linear_q4", {"m": 1, "k": 2048, "n": 2048}),
    Row("4-bit linear 128×2048×2048", "linear_q4", {"m": 128, "k": 2048, "n": 2048}),
    Row("rms_norm 1×2048", "rms_norm", {"m": 1, "k": 2048}),
    Row("rms_norm 128×2048", "rms_norm", {"m": 128, "k": 2048}),
    Row("attention 32/8×64, 1 after 511", "attention", {"s": 1, "past": 511}),
    Row("attention 32/8×64, 128 after 0", "attention", {"s": 128, "past": 0}),
    Row("SmolLM2-135M, a decode step", "llm", {"s": 1, "past": 128}),
    Row("SmolLM2-135M, prefill of 128", "llm", {"s": 128, "past": 0}),
    Row(
        "worst first call at a new shape, 512×512",
        "linear",
        {"m": 128, "k": 512, "n": 512},
        first_calls=(7, 33, 64, 101, 20, 1),
    ),
)

MODEL_ROWS = tuple(Row(name, "model", {}) for name in models.MODELS)
TEXTS = 64
TEXT_ROWS = (Row(f"MiniLM, vectors of {TEXTS} short texts", "texts", {"texts": TEXTS}),)

HEADS, KV_HEADS, HEAD = 32, 8, 64


def arrays(row: Row) -> dict[str, Array]:
    """The arrays of a row, the same for every side. Weights are scaled so that results are near 1."""
    generator = np.random.default_rng(0)
    sizes = row.sizes

    def normal(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(np.float32)

    match row.kind:
        case "linear":
            return {
                "x": normal(sizes["m"], sizes["k"]),
                "w": normal(sizes["n"], sizes["k"]) / sizes["k"] ** 0.5,
            }
        case "linear_q4":
            n, k = sizes["n"], sizes["k"]
            packed = generator.integers(0, 256, (n, k // 2), np.uint8)  # even k in the low half
            scales = np.abs(normal(n, k // GROUP)) / (4 * k**0.5)
            return {"x": normal(sizes["m"], k), "w": packed, "scales": scales}
        case "rms_norm":
            return {"x": normal(sizes["m"], sizes["k"]), "w": normal(sizes["k"])}
        case "attention":
            s, past = sizes["s"], sizes["past"]
            return {
                "q": normal(1, s, HEADS, HEAD),
                "k": normal(1, s, KV_HEADS, HEAD),
                "v": normal(1, s, KV_HEADS, HEAD),
                "past_k": normal(1, past, KV_HEADS, HEAD),
                "past_v": normal(1, past, KV_HEADS, HEAD),
            }
        case "model":
            return {"x": np.load(models.folder(row.name) / "x.npy")}
        case _:
            return {}


def expected(row: Row, data: dict[str, Array]) -> Array | None:
    """The result of numpy, which every side must match."""
    result: Array
    match row.kind:
        case "linear":
            result = data["x"] @ data["w"].T
        case "linear_q4":
            halves = np.stack([data["w"] & 15, data["w"] >> 4], axis=-1).reshape(data["w"].shape[0], -1)
            weights = (halves.astype(np.float32) - 8) * np.repeat(data["scales"], GROUP, axis=1)
            result = data["x"] @ weights.T
        case "rms_norm":
            x = data["x"]
            result = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * data["w"]
        case "attention":
            result = _attention(data, row.sizes["past"])
        case "model":
            result = np.load(models.folder(row.name) / "expected.npy")
        case "texts":
            result = np.load(models.folder("MiniLM") / "expected.npy")
        case _:
            return None
    return result


def _attention(data: dict[str, Array], past: int) -> Array:
    k, v = (np.concatenate([data[f"past_{n}"], data[n]], axis=1)[0] for n in "kv")
    q = data["q"][0]
    k, v = (np.repeat(x, HEADS // KV_HEADS, axis=1) for x in (k, v))
    scores = np.einsum("shd,thd->hst", q, k) / HEAD**0.5
    visible = np.arange(k.shape[0])[None, :] <= past + np.arange(q.shape[0])[:, None]
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: Array = np.einsum("hst,thd->shd", weights / weights.sum(-1, keepdims=True), v)[None]
    return result
