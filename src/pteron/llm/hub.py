"""Models of the Hugging Face Hub, downloaded once by `huggingface_hub` into its own cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pteron._util.extras import needs
from pteron.errors import InputError, PteronError

# As for llama.cpp: which file of a repository with several quantisations is taken.
PREFERRED = "Q4_K_M"

# What a model is made of, where a repository has no GGUF file.
FOLDER_FILES = (
    "config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "*_Pooling/config.json",
)
REFERENCE = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(:(?P<tag>[\w.-]+))?")
TIMEOUT = 10  # seconds to wait for the hub, before what was downloaded earlier is used


def download(reference: str) -> Path:
    """A model by its name `org/repo` or `org/repo:Q4_K_M`: a GGUF file, or else a folder of safetensors.

    What was downloaded before needs no network.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise InputError(f"{reference!r} is not a model of the hub: write org/repo, or org/repo:Q4_K_M")
    return _Repository(match["repo"]).model(match["tag"])


class _Repository:
    def __init__(self, name: str) -> None:
        with needs("llm", "to download a model"):
            import huggingface_hub
        self._hub: Any = huggingface_hub
        self.name = name

    def model(self, tag: str | None) -> Path:
        try:
            facts = self._hub.HfApi().model_info(self.name, timeout=TIMEOUT)
        except Exception as error:  # of the hub, of its transport, or of the system
            return self._cached(tag, error)
        chosen = choose([file.rfilename for file in facts.siblings or ()], tag, self.name)
        try:
            return self._fetch(chosen)
        except Exception as error:
            raise self._failure(error) from error

    def _fetch(self, chosen: str | None, **options: Any) -> Path:
        """A file, or the whole folder."""
        if chosen is not None:
            return Path(self._hub.hf_hub_download(self.name, chosen, **options))
        return Path(self._hub.snapshot_download(self.name, allow_patterns=list(FOLDER_FILES), **options))

    def _cached(self, tag: str | None, reason: Exception) -> Path:
        """A model that was downloaded before. Without one, the reason why it cannot be downloaded now."""
        if isinstance(reason, self._hub.errors.RepositoryNotFoundError):  # also where a login is needed
            raise self._failure(reason) from reason
        try:
            folder = Path(self._hub.snapshot_download(self.name, local_files_only=True))
        except Exception:
            raise self._failure(reason) from reason
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        chosen = choose(files, tag, f"{self.name}, as it was downloaded before,")
        return folder if chosen is None else folder / chosen

    def _failure(self, error: Exception) -> PteronError:
        errors = self._hub.errors
        if isinstance(error, errors.GatedRepoError):
            way = "accept its conditions on its page, and log in with `hf auth login`"
            return PteronError(f"{self.name} may be downloaded only by those who were given access: {way}")
        if isinstance(error, errors.RepositoryNotFoundError):
            way = "check the name, or log in with `hf auth login`"
            return PteronError(f"{self.name} is not on the hub, or is private: {way}")
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return PteronError(
            f"{self.name} cannot be downloaded ({first_line}): check the network. "
            "Models that were downloaded before work without it."
        )


def choose(files: Sequence[str], tag: str | None, where: str) -> str | None:
    """The GGUF file to take; None: take the safetensors."""
    found = sorted(file for file in files if file.endswith(".gguf") and "mmproj" not in file)
    if not found:
        if tag is not None:
            raise InputError(f"{where} has no GGUF files, so there is no {tag}: leave out :{tag}")
        if not any(file.endswith(".safetensors") for file in files):
            raise InputError(f"{where} has neither GGUF files nor safetensors")
        return None
    tagged = [file for file in found if _has_tag(file, tag or PREFERRED)]
    if tag is not None and not tagged:
        raise InputError(f"{where} has no file {tag}; its GGUF files are: {', '.join(found)}")
    chosen = (tagged or found)[0]
    if re.search(r"-\d{5}-of-\d{5}\.gguf$", chosen):
        raise InputError(f"{where}: {chosen} is one part of a split model, which is not supported")
    return chosen


def _has_tag(file: str, tag: str) -> bool:
    return re.search(rf"(^|[-_./]){re.escape(tag)}([-./]|$)", file, re.IGNORECASE) is not None
