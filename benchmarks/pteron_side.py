"""The side of Pteron: programs with one operator, and SmolLM2 from `pteron convert`."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

import pteron
from benchmarks import models
from benchmarks.one_op import Fixed, OneOp
from benchmarks.rows import EPSILON, GROUP, HEAD, HEADS, KV_HEADS, Array, Row, Unsupported
from pteron.engine.devices.opening import open_device

CONTEXT = 1024  # positions in the caches of the attention rows


class Side:
    def __init__(self) -> None:
        self._device = open_device()

    def facts(self) -> dict[str, str]:
        import wgpu

        adapter = self._device.adapter
        return {
            "version": f"pteron {pteron.__version__}, wgpu {wgpu.__version__}",
            "adapter": adapter.name,
            "driver": adapter.driver,
        }

    def prepare(self, row: Row, data: dict[str, Array]) -> Callable[[int | None], Array]:
        if row.kind == "llm":
            return self._language_model(row)
        if row.kind == "model":
            method = pteron.load(models.folder(row.name) / "model.pte", device=self._device).method()
            return lambda live: method.execute([data["x"]])[0]
        if row.kind == "texts":
            return self._texts(row)
        op = self._one_op(row, data)
        first, *others = op.inputs
        return lambda live: op.call([first if live is None else first[:live], *others])[0]

    def _one_op(self, row: Row, data: dict[str, Array]) -> OneOp:
        sizes = row.sizes
        match row.kind:
            case "linear":
                args = [data["x"], Fixed(data["w"]), None]
                return OneOp(self._device, "aten.linear.default", args, [(sizes["m"], sizes["n"])])
            case "linear_q4":
                scales = np.ascontiguousarray(data["scales"].T)
                args = [data["x"], Fixed(data["w"]), Fixed(scales), GROUP, None]
                return OneOp(self._device, "et_vk.linear_q4gsw.default", args, [(sizes["m"], sizes["n"])])
            case "rms_norm":
                args = [data["x"], Fixed(data["w"]), EPSILON]
                return OneOp(self._device, "et_vk.rms_norm.default", args, [data["x"].shape])
            case _:
                return self._attention(sizes["past"], data)

    def _attention(self, past: int, data: dict[str, Array]) -> OneOp:
        caches = []
        for name in ("past_k", "past_v"):
            cache = np.zeros((1, CONTEXT, KV_HEADS, HEAD), np.float32)
            cache[:, :past] = data[name]
            caches.append(Fixed(cache))
        length = data["q"].shape[1]
        args = [data["q"], data["k"], data["v"], *caches, past, length, None, 0.0, True, None]
        return OneOp(self._device, "sdpa_with_kv_cache.default", args, [(1, length, HEADS, HEAD)])

    def _texts(self, row: Row) -> Callable[[int | None], Array]:
        from benchmarks.map_texts import BATCH, MODEL, encoded, short_texts

        program = pteron.load(models.folder(MODEL) / "minilm.pte", device=self._device)
        tokens = encoded(short_texts(row.sizes["texts"]))
        return lambda live: np.stack(list(program.map(tokens, batch=BATCH)))

    def _language_model(self, row: Row) -> Callable[[int | None], Array]:
        from pteron.llm.decoder import Decoder

        path = os.environ.get("PTERON_BENCH_MODEL")
        if not path:
            raise Unsupported("SmolLM2 is not installed: see scripts/bench_peers.sh")
        decoder = Decoder(pteron.load(path, device=self._device, kv_dtype="f16"))  # as pteron.llm.load
        state = decoder.new_state()
        generator = np.random.default_rng(0)

        def tokens(count: int) -> list[int]:
            return [int(token) for token in generator.integers(0, decoder.vocab_size, count)]

        if row.sizes["past"]:
            decoder.logits(tokens(row.sizes["past"]), 0, state)
        step = tokens(row.sizes["s"])
        return lambda live: decoder.logits(step, row.sizes["past"], state)
