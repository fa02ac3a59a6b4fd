"""Language models from GGUF files. Needs the extra `llm`: `pip install '.[llm]'`."""

from pteron.llm.gguf.convert import Conversion, Progress, convert

__all__ = ["Conversion", "Progress", "convert"]
