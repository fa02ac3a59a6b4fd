"""The server answers with the language model that the tests of generation use."""

from tests.llm.conftest import llm, model_folder

__all__ = ["llm", "model_folder"]
