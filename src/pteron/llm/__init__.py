"""Language models and embedders.

Example:
    ```python
    llm = pteron.llm.load("model.gguf")
    for piece in llm.stream("Once upon a time", max_new_tokens=64, temperature=0.8, seed=1):
        print(piece.text, end="", flush=True)
    ```
"""

from typing import TYPE_CHECKING, Any

from pteron.llm.chat_template import ChatTemplate
from pteron.llm.compare import Comparison, compare
from pteron.llm.context import ContextFull
from pteron.llm.embedder import Embedder, load_embedder
from pteron.llm.generate import Generation, Piece, Stream
from pteron.llm.logprobs import TokenLogprob
from pteron.llm.model import LanguageModel, load
from pteron.llm.options import Options
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.session import Session
from pteron.llm.stats import Stats
from pteron.llm.tokenizer import Detokenizer, Tokenizer
from pteron.llm.tools import CallDelta, ToolCall, ToolError

if TYPE_CHECKING:
    from pteron.llm.gguf import convert

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


def __getattr__(name: str) -> Any:
    """Import `convert` at first use: it needs packages that a model does not need to run."""
    if name == "convert":
        from pteron._util.extras import needs

        with needs("llm", "to convert a model"):
            from pteron.llm.gguf import convert
        return convert
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
