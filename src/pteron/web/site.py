"""A static site: a frozen program, the JavaScript that runs it, and a page. Any web server can serve it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pteron._util import assets, pages
from pteron._util.distinct_files import refuse_inputs
from pteron._util.progress import Progress
from pteron.compiler.lower.bounds import GivenShapes
from pteron.llm.context_choice import ContextFacts, file_facts
from pteron.web.language_files import FACTS, TOKENIZER_FILE, write_language_files
from pteron.web.program_files import ALL, write_program

VENDORED = ("jinja.js", "tokenizers.js")
SERVICE_WORKER = "service-worker.js"
MOST_TOKENS = 128  # of a call of a chat page


def write_site(
    program: Path,
    folder: Path,
    *,
    name: str,
    chat: bool,
    method: str = "forward",
    variants: Sequence[str] = ALL,
    data_path: Sequence[Path] = (),
    tokenizer: Path | None = None,
    context_length: int | None = None,
    kv_dtype: str = "f16",
    shapes: GivenShapes | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a site for a `.pte` program.

    chat: with a chat page, for a language model. Otherwise the page shows the program's inputs and outputs.
    For the other options see `write_program` and `pteron.llm.load`.
    """
    refuse_inputs(folder, [program, *data_path, *([tokenizer] if tokenizer else [])])
    folder.mkdir(parents=True, exist_ok=True)
    facts = file_facts(program)
    context_length = context_length or facts.context or None
    own = page_files(chat)  # fails early if a checkout has no vendored scripts
    write_program(
        program,
        folder,
        method=method,
        variants=variants,
        data_path=data_path,
        kv_dtype=kv_dtype if chat else None,
        kv_length=context_length if chat and facts.can_change else None,
        shapes=shapes or (_short_calls(facts, context_length) if chat else None),
        progress=progress,
    )
    if chat:
        write_language_files(
            program,
            folder,
            name,
            tokenizer=tokenizer,
            context_length=context_length,
            data_path=list(data_path),
            kv_dtype=kv_dtype,
        )
    else:
        own["site.json"] = json.dumps({"name": name}).encode()
    own[SERVICE_WORKER] = _service_worker([*own, *((FACTS, TOKENIZER_FILE) if chat else ())])
    for path, content in own.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def _short_calls(facts: ContextFacts, context: int | None) -> GivenShapes | None:
    """Calls that a page does not wait long for."""
    return facts.shapes(facts.call_length(min(MOST_TOKENS, facts.longest_call) or None, context))


def page_files(chat: bool) -> dict[str, bytes]:
    """The site's own files by their paths: everything but the program, its weights and its tokenizer."""
    package = files(__package__)
    found = {f"pteron/{name}": content for name, content in _contents(package / "runtime")}
    found |= dict(_contents(package / "site" / ("chat" if chat else "program")))
    if chat:
        found |= {name: pages.read(name) for name in pages.CHAT}
        found["index.html"] = pages.read("chat.html")
        for name in VENDORED:
            found[f"vendor/{name}"] = assets.find(name).read_bytes()
            licence = assets.licence(name)
            found[f"vendor/{licence.name}"] = licence.read_bytes()
    else:
        found |= {name: pages.read(name) for name in ("chat.css", "icon.svg", "theme.js")}
    return found


def _contents(folder: Traversable) -> list[tuple[str, bytes]]:
    return sorted((file.name, file.read_bytes()) for file in folder.iterdir() if file.is_file())


def _service_worker(names: Sequence[str]) -> bytes:
    """The service worker, which knows the files of the site."""
    source = (files(__package__) / "site" / SERVICE_WORKER).read_text(encoding="utf-8")
    wanted = [".", *(name for name in names if not name.endswith((".LICENSE", ".d.ts")))]
    return source.replace("/* files */", ", ".join(json.dumps(name) for name in wanted)).encode()
