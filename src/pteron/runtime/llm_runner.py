"""A drop-in replacement for the text runner of `executorch.extension.llm.runner`, on any GPU.

Example:
    ```python
    from pteron.runtime.llm_runner import GenerationConfig, TextLLMRunner

    runner = TextLLMRunner("model.pte", "tokenizer.json")
    runner.generate("Once upon a time", GenerationConfig(max_new_tokens=20), print)
    ```

It behaves as ExecuTorch's: text is continued at the current position until `reset`, and the first new token
is always the most probable one. Nothing is printed. `pteron.llm` does more: chat, sessions, batches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import pteron.llm
from pteron.llm.decoder import Row
from pteron.llm.options import Sampling
from pteron.llm.sampling import Sampler
from pteron.llm.tokenizer import Detokenizer
from pteron.runtime.executorch import RuntimeFailure, as_runtime_errors

__all__ = ["GenerationConfig", "Stats", "TextLLMRunner"]

TOP_P = 0.9  # of ExecuTorch's sampler, which has no option for it


@dataclass(kw_only=True)
class GenerationConfig:
    """The options of a generation. -1: as many tokens as the context has room for."""

    echo: bool = True
    max_new_tokens: int = -1
    warming: bool = False
    seq_len: int = -1
    temperature: float = 0.8
    num_bos: int = 0
    num_eos: int = 0

    def resolve_max_new_tokens(self, max_context_len: int, num_tokens_occupied: int) -> int:
        """The number of new tokens after this many tokens."""
        whole = max_context_len if self.seq_len == -1 else min(self.seq_len, max_context_len)
        left = max(0, whole - num_tokens_occupied)
        return left if self.max_new_tokens == -1 else min(self.max_new_tokens, left)


@dataclass
class Stats:
    """Counts and times of a generation, in milliseconds of this machine's clock."""

    SCALING_FACTOR_UNITS_PER_SECOND: ClassVar[int] = 1000

    model_load_start_ms: int = 0
    model_load_end_ms: int = 0
    inference_start_ms: int = 0
    token_encode_end_ms: int = 0
    model_execution_start_ms: int = 0
    model_execution_end_ms: int = 0
    prompt_eval_end_ms: int = 0
    first_token_ms: int = 0
    inference_end_ms: int = 0
    aggregate_sampling_time_ms: int = 0
    aggregate_model_execution_time_ms: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0

    def reset(self, all_stats: bool = False) -> None:
        """Begin again. The times of the load are kept, unless `all_stats`."""
        kept = () if all_stats else ("model_load_start_ms", "model_load_end_ms")
        for name in asdict(self):
            if name not in kept:
                setattr(self, name, 0)

    def to_json_string(self) -> str:
        return json.dumps({**asdict(self), "SCALING_FACTOR_UNITS_PER_SECOND": 1000})


def _now() -> int:
    return time.time_ns() // 1_000_000


class TextLLMRunner:
    """Generates text with one KV state, which `reset` clears."""

    def __init__(
        self, model_path: str | Path, tokenizer_path: str | Path, data_path: str | Path | None = None
    ) -> None:
        self._stats = Stats(model_load_start_ms=_now())
        with as_runtime_errors():
            self._model = pteron.llm.load(
                model_path, tokenizer=tokenizer_path, data_path=data_path, kv_dtype="f32"
            )
        self._stats.model_load_end_ms = _now()
        self._decoder = self._model.decoder
        self._state = self._decoder.new_state()
        self._position = 0
        self._logits: Row | None = None  # after the last token that was fed
        self._stopped = False

    def generate(
        self,
        prompt: str,
        config: GenerationConfig | None = None,
        token_callback: Callable[[str], None] | None = None,
        stats_callback: Callable[[Stats], None] | None = None,
    ) -> None:
        """Continue the text with a prompt, and then with new tokens. An empty prompt continues a prefill."""
        config = config or GenerationConfig()
        give = token_callback or (lambda piece: None)
        stats = self._stats
        stats.reset()
        stats.inference_start_ms = _now()
        if not 0 <= config.temperature <= 1:
            raise RuntimeFailure(f"Generation failed: temperature is {config.temperature}, not 0 to 1")
        self._stopped = False
        stats.num_prompt_tokens = self._feed_text(prompt, config)
        if config.echo and prompt:
            give(prompt)
        most = config.resolve_max_new_tokens(self._decoder.context_length, self._position)
        if not most:
            raise RuntimeFailure(
                f"Generation failed: max_new_tokens is {config.max_new_tokens}, and {self._position} of "
                f"{self._decoder.context_length} positions are taken"
            )
        text = Detokenizer(self._model.tokenizer)
        for count, token in enumerate(self._tokens(config, most)):
            stats.num_generated_tokens = count
            if piece := text.push(token):
                give(piece)
        if piece := text.finish():
            give(piece)
        stats.inference_end_ms = _now()
        if stats_callback is not None:
            stats_callback(stats)

    def prefill(self, prompt: str, config: GenerationConfig | None = None) -> None:
        """Read a text. `generate` with an empty prompt continues it."""
        self._feed_text(prompt, config or GenerationConfig())

    def stop(self) -> None:
        """End the generation after its current token. Another thread, or the callback, calls this."""
        self._stopped = True

    def reset(self) -> None:
        """Forget the text."""
        self._position, self._logits = 0, None
        self._state.reset()

    def get_vocab_size(self) -> int:
        return self._decoder.vocab_size

    def close(self) -> None:
        """Free everything on the GPU."""
        self._model.close()

    def _feed_text(self, prompt: str, config: GenerationConfig) -> int:
        """Read a prompt, and return the number of its tokens."""
        if not prompt:
            if self._logits is None:
                raise RuntimeFailure("Generation failed: the prompt is empty, and no text was read before it")
            return 0
        decoder = self._decoder
        with as_runtime_errors():
            tokens = self._model.tokenizer.encode(prompt, add_special_tokens=False)
        first = [] if decoder.bos_id is None else [decoder.bos_id] * config.num_bos
        last = sorted(self._model.eos_ids)[:1] * config.num_eos
        tokens = [*first, *tokens, *last]
        room = decoder.context_length - self._position
        if len(tokens) >= room:
            raise RuntimeFailure(
                f"Generation failed: the prompt has {len(tokens)} tokens, but the context has room for {room}"
            )
        self._stats.token_encode_end_ms = _now()
        for at in range(0, len(tokens), decoder.max_length):
            self._feed(tokens[at : at + decoder.max_length])
        self._stats.prompt_eval_end_ms = _now()
        return len(tokens)

    def _feed(self, tokens: Sequence[int]) -> Row:
        begin = _now()
        with as_runtime_errors():
            self._logits = self._decoder.logits(tokens, self._position, self._state)
        self._position += len(tokens)
        stats = self._stats
        stats.model_execution_start_ms, stats.model_execution_end_ms = begin, _now()
        stats.aggregate_model_execution_time_ms += stats.model_execution_end_ms - begin
        return self._logits

    def _tokens(self, config: GenerationConfig, most: int) -> Iterator[int]:
        """New tokens. Each one is read when the next is needed, so the last one is not read."""
        sampler = Sampler(Sampling(temperature=config.temperature, top_p=TOP_P))
        assert self._logits is not None
        token = int(self._logits.argmax())
        self._stats.first_token_ms = _now()
        for left in reversed(range(most)):
            yield token
            if token in self._model.eos_ids or self._stopped or not left:
                return
            logits = self._feed([token])
            begin = _now()
            token = sampler.choose(logits)
            self._stats.aggregate_sampling_time_ms += _now() - begin
