"""The side of llama.cpp on the CPU, with one thread: SmolLM2 from its GGUF file.

A decode step is a request whose prompt is in the cache, except for its last token. So each call evaluates one
token and chooses the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import xllamacpp

from benchmarks.rows import Array, Row, Unsupported

CONTEXT = 512
VOCABULARY = 49152  # of SmolLM2


class Side:
    def __init__(self) -> None:
        self._server: Any = None

    def facts(self) -> dict[str, str]:
        version = metadata.version("xllamacpp")
        return {"version": f"llama.cpp (xllamacpp {version})", "adapter": "CPU, one thread"}

    def prepare(self, row: Row, data: dict[str, Array]) -> Callable[[int | None], Array]:
        if row.kind != "llm":
            raise Unsupported("it runs language models only")
        server = self._server = self._server or _server()
        past, length = row.sizes["past"], row.sizes["s"]
        prompt = np.random.default_rng(0).integers(0, VOCABULARY, past + length).tolist()
        request = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": past > 0}

        def call(live: int | None) -> Array:
            server.handle_completions(request)
            return np.empty(0)

        return call


def _server() -> Any:
    path = os.environ.get("PTERON_BENCH_GGUF")
    if not path:
        raise Unsupported("SmolLM2 is not installed: see scripts/bench_peers.sh")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.n_gpu_layers = CONTEXT, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup, params.verbosity = False, -1
    return xllamacpp.Server(params)
