"""Links, commands and environment variables in the documents are right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

import pteron
from pteron._util.extras import MissingExtra
from pteron.cli.commands import app
from tests.support.documents import DOCUMENTS, ROOT, anchors, blocks, commands, links, text_of

# Pages that are made when the site is built.
GENERATED = {"docs/commands.md"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    for target in links(document):
        path, _, anchor = target.partition("#")
        file = (folder / path).resolve() if path else ROOT / document
        name = file.relative_to(ROOT).as_posix()
        if name in GENERATED:
            continue
        assert file.exists(), f"{document}: {target}: there is no such file"
        assert not anchor or anchor in anchors(name), f"{document}: {target}: there is no such heading"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_exist(document: str) -> None:
    root: Any = typer.main.get_command(app)
    for words in commands(document):
        name = words[1] if len(words) > 1 else ""
        if name.startswith("-") or name.isupper():  # pteron --version, pteron COMMAND
            continue
        command = root.commands.get(name)
        assert command, f"{document}: {' '.join(words)}: there is no such command"
        nested = getattr(command, "commands", {})
        if nested and len(words) > 2:
            command = nested[words[2]]
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        for word in words[2:]:
            option = word.split("=")[0]
            if re.match(r"--?[a-z]", option):
                assert option in known, f"{document}: {' '.join(words)}: there is no option {option}"


def test_what_the_architecture_names_exists() -> None:
    """Files and folders by the end of their path, and every word of the names in code."""
    paths = [path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.*")]
    sources = [path for path in paths if path.suffix in (".py", ".wgsl") and "node_modules" not in path.parts]
    known = set(re.findall(r"\w+", " ".join(path.read_text("utf-8") for path in sources)))
    places = [f"/{path.relative_to(ROOT).as_posix()}/" for path in paths]
    text = re.sub(r"```.*?```", "", text_of("ARCHITECTURE.md"), flags=re.DOTALL)
    optional = set() if find_spec("pteron.compiler.software") else {"compiler/software"}
    for name in set(re.findall(r"`([^`\n]+)`", text)) - optional:  # that package may be deleted
        is_path = "/" in name.strip("/") or re.fullmatch(r"\w+\.(py|js|wgsl)", name)
        exists = (
            any(f"/{name.strip('/')}/" in place for place in places)
            if is_path and not name.startswith("//")
            else known.issuperset(re.findall(r"[A-Za-z_]\w*", name))
        )
        assert exists, f"ARCHITECTURE.md: {name}: there is nothing of this name"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_names_in_code_exist(document: str) -> None:
    """Also in blocks that are not run."""
    for block in blocks(document):
        if block.language == "python":
            for name in _names_of_pteron(ast.parse(block.text, document)):
                _find(name)


def _names_of_pteron(tree: ast.AST) -> Iterator[str]:
    """Such as `pteron.llm.load`, and what is imported from Pteron."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"pteron\.[\w.]+$", ast.unparse(node)):
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pteron"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _find(name: str) -> None:
    with suppress(MissingExtra):  # Ray is not installed here
        found = pteron
        for part in name.split(".")[1:]:
            if not hasattr(found, part):
                import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)


def test_the_page_of_environment_variables_is_complete() -> None:
    page = text_of("docs/environment.md")
    for name in sorted(set(_variables())):
        assert f"`{name}`" in page, f"docs/environment.md does not describe {name}"


def _variables() -> Iterator[str]:
    """The environment variables that the source names: in `os.environ` and in options of commands."""
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text("utf-8")
        if "environ" in source or "envvar" in source:
            yield from _names(path, ast.parse(source))


def _names(path: Path, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(PTERON|XDG|HF|RAY|TOKENIZERS)_[A-Z_]+", node.value):
                yield node.value
        elif isinstance(node, ast.keyword) and node.arg == "envvar":
            assert isinstance(node.value, ast.Constant), f"{path}: write the name of the variable there"


def test_the_page_of_cache_files_is_complete() -> None:
    page = text_of("docs/environment.md")
    sources = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    names = [name for text in sources for name in re.findall(r'user_cache\.folder\(\) / f?"([\w.-]+)', text)]
    assert names
    for name in names:
        assert f"~/.cache/pteron/{name}" in page, f"docs/environment.md does not describe the file {name}"


def test_the_files_of_github_are_yaml() -> None:
    files = sorted((ROOT / ".github").rglob("*.yml"))
    assert files
    for file in files:
        assert isinstance(yaml.safe_load(file.read_text("utf-8")), dict), file


def test_the_tests_of_the_promises_exist() -> None:
    file = ""
    found = re.findall(r"`([\w/]+\.py)?::(test_\w+)`", text_of("docs/promises.md"))
    assert found
    for named, test in found:
        file = named or file
        source = (ROOT / "tests" / file).read_text("utf-8")
        assert re.search(rf"def {test}\(", source), f"docs/promises.md: {file} has no {test}"
