"""llama.cpp's side of `benchmarks.greedy`: greedy answers on the CPU, in a process of its own.

It reads {"model": path, "prompts": [...], "tokens": n} from standard input. It writes a list of answers. An
answer is a list of [token, probability of the best token, probability of the second].
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import xllamacpp


def main() -> None:
    task = json.load(sys.stdin)
    params = xllamacpp.CommonParams()
    params.model.path = task["model"]
    params.n_ctx, params.n_parallel, params.n_gpu_layers = 512, 1, 0
    params.warmup, params.verbosity = False, -1
    server = xllamacpp.Server(params)
    answers = [_answer(server, prompt, task["tokens"]) for prompt in task["prompts"]]
    print(json.dumps(answers))


def _answer(server: Any, prompt: str, tokens: int) -> list[tuple[int, float, float]]:
    """The server applies the model's own chat template."""
    result = server.handle_chat_completions(
        {
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 2,
        }
    )
    places = result["choices"][0]["logprobs"]["content"]
    return [(p["id"], *(math.exp(top["logprob"]) for top in p["top_logprobs"])) for p in places]


if __name__ == "__main__":
    main()
