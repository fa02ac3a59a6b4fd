"""Language models from GGUF files. Needs the extra `llm`: `pip install '.[llm]'`."""

from pteron._util.extras import needs

with needs("llm", "to convert a model"):
    from pteron.llm.gguf.convert import Conversion, convert

__all__ = ["Conversion", "convert"]
