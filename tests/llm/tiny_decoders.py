"""Models of transformers as Hugging Face folders, with a tokenizer."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch

from tests.llm import tiny_llama


def write_folder(folder: Path, model: Any, dtype: torch.dtype = torch.float32, **options: Any) -> Path:
    """As `save_pretrained` writes it. The parameters of the model are first rounded to the dtype."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype).float()
    copy.deepcopy(model).to(dtype).save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_text(tiny_llama.tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<|im_start|>"}}))
    (folder / "chat_template.jinja").write_text(tiny_llama.TEMPLATE)
    return folder


def change(folder: Path, file: str, **entries: Any) -> None:
    """Change entries of a JSON file, or remove those that become None."""
    path = folder / file
    known = {**json.loads(path.read_text()), **entries}
    path.write_text(json.dumps({name: value for name, value in known.items() if value is not None}))
