"""Language models and embedders.

Example:
    ```python
    llm = pteron.llm.load("model.gguf")
    for piece in llm.stream("Once upon a time", max_new_tokens=64, temperature=0.8, seed=1):
        print(piece.text, end="", flush=True)
    ```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron.llm.answer import Piece
    from pteron.llm.chat_template import ChatTemplate
    from pteron.llm.comparison import Comparison, compare
    from pteron.llm.context import ContextFull
    from pteron.llm.embedder import Embedder, load_embedder
    from pteron.llm.generate import Generation, Stream
    from pteron.llm.gguf import convert
    from pteron.llm.logprobs import TokenLogprob
    from pteron.llm.model import LanguageModel, load
    from pteron.llm.options import Options, Sampling
    from pteron.llm.sampling import Sampler
    from pteron.llm.session import Session
    from pteron.llm.stats import Stats
    from pteron.llm.tokenizer import Detokenizer, Tokenizer
    from pteron.llm.tools import CallDelta, ToolCall, ToolError

__all__ = [
    "CallDelta",
    "ChatTemplate",
    "Comparison",
    "ContextFull",
    "Detokenizer",
    "Embedder",
    "Generation",
    "LanguageModel",
    "Options",
    "Piece",
    "Sampler",
    "Sampling",
    "Session",
    "Stats",
    "Stream",
    "TokenLogprob",
    "Tokenizer",
    "ToolCall",
    "ToolError",
    "compare",
    "convert",
    "load",
    "load_embedder",
]


# Imported at first use: the command line reads the table of options, and needs nothing else at its start.
_HOMES = {
    "answer": "Piece",
    "chat_template": "ChatTemplate",
    "comparison": "Comparison compare",
    "context": "ContextFull",
    "embedder": "Embedder load_embedder",
    "generate": "Generation Stream",
    "gguf": "convert",
    "logprobs": "TokenLogprob",
    "model": "LanguageModel load",
    "options": "Options Sampling",
    "sampling": "Sampler",
    "session": "Session",
    "stats": "Stats",
    "tokenizer": "Detokenizer Tokenizer",
    "tools": "CallDelta ToolCall ToolError",
}

if not TYPE_CHECKING:  # else every name would have the type Any

    def __getattr__(name: str) -> Any:
        home = next((home for home, names in _HOMES.items() if name in names.split()), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(f"{__name__}.{home}"), name)
        return value
