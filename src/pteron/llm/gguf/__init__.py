"""Language models from GGUF files. Needs the `llm` extra: `pip install pteron[llm]`."""

from pteron.llm.gguf.convert import Conversion, Progress, convert

__all__ = ["Conversion", "Progress", "convert"]
