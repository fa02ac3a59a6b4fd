"""The families of decoders that Pteron converts. A new one is a record here."""

from __future__ import annotations

from pteron.llm.architectures.architecture import Architecture

ARCHITECTURES = {
    family.name: family
    for family in (
        Architecture("llama", ("llama", "mistral"), pairs_in_gguf=True),
        Architecture("qwen2", ("qwen2",)),
        Architecture("qwen3", ("qwen3",), head_norm="head"),
    )
}


def by_model_type(model_type: str) -> Architecture | None:
    """The family of a Hugging Face model."""
    return next((family for family in ARCHITECTURES.values() if model_type in family.model_types), None)
