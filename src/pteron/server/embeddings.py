"""The requests and responses of /v1/embeddings."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.llm import Embedder
from pteron.llm.embedder import Vectors
from pteron.server.embedding_batch import Embedding
from pteron.server.requests import ApiError, boolean, integer, json_object, model_name

MOST_INPUTS = 2048


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    model: str | None
    inputs: list[str] | list[list[int]]
    dimensions: int | None
    is_base64: bool
    truncate: bool


def parse_embeddings(body: bytes) -> EmbeddingRequest:
    """The body of /v1/embeddings."""
    fields = json_object(body)
    form = fields.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise ApiError(400, "encoding_format must be float or base64", param="encoding_format")
    return EmbeddingRequest(
        model_name(fields),
        _inputs(fields),
        integer(fields, "dimensions", 1),
        form == "base64",
        boolean(fields, "truncate"),
    )


def _inputs(fields: Mapping[str, Any]) -> Any:
    """A list of texts, or a list of lists of tokens."""
    given = fields.get("input")
    is_one = isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int)
    inputs = [given] if is_one else given
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MOST_INPUTS:
        raise ApiError(400, f"input must be a text, or a list of 1 to {MOST_INPUTS} texts", param="input")
    are_texts = all(isinstance(each, str) for each in inputs)
    if not are_texts and not all(_is_tokens(each) for each in inputs):
        raise ApiError(400, "input must have only texts, or only lists of tokens", param="input")
    return inputs


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def token_rows(embedder: Embedder, request: EmbeddingRequest) -> list[list[int]]:
    """The tokens of the inputs. ApiError or InputError if the model cannot read them."""
    if request.dimensions is not None and request.dimensions > embedder.width:
        raise ApiError(400, f"dimensions must be at most {embedder.width}", param="dimensions")
    rows: list[list[int]] = []
    for number, each in enumerate(request.inputs):
        if isinstance(each, list):
            _check_tokens(embedder, number, each)
            rows.append(each)
    return rows or embedder.encode(
        [each for each in request.inputs if isinstance(each, str)], truncate=request.truncate
    )


def _check_tokens(embedder: Embedder, number: int, tokens: Sequence[int]) -> None:
    size, limit = embedder.tokenizer.vocab_size, embedder.max_length
    if len(tokens) > limit or not all(0 <= token < size for token in tokens):
        wanted = f"at most {limit} tokens from 0 to {size - 1}"
        raise ApiError(400, f"input[{number}] must have {wanted}", param="input")


def embeddings_body(name: str, request: EmbeddingRequest, work: Embedding, normalize: bool) -> dict[str, Any]:
    """The response. `normalize`: the model's vectors have the length 1, and shortened ones have it again."""
    vectors = _shortened(work.vectors, request.dimensions, normalize)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, request.is_base64)}
            for index, vector in enumerate(vectors)
        ],
        "model": name,
        "usage": {"prompt_tokens": work.tokens, "total_tokens": work.tokens},
    }


def _shortened(vectors: Vectors, dimensions: int | None, normalize: bool) -> Vectors:
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    cut = vectors[:, :dimensions]
    if not normalize:
        return cut
    lengths: Vectors = np.linalg.norm(cut, axis=1, keepdims=True)
    return (cut / np.maximum(lengths, np.finfo(np.float32).tiny)).astype(np.float32)


def _encoded(vector: Vectors, is_base64: bool) -> Any:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if is_base64 else vector.tolist()
