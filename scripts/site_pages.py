"""A hook of MkDocs: pages that are not in docs/.

Documents elsewhere in the repository become pages, and the links to them work. On a code host, a link is the
path of a file. On the site, these documents have other paths. The page of the commands is generated.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import command_page  # in this folder
from mkdocs.structure.files import File

# The path of a document in the repository, and the path of its page in docs/.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
_DOCUMENTS = {page: document for document, page in PAGES.items()}
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+\.md)(?=[)#])")


def on_config(config: Any) -> Any:
    """Pages that the navigation does not list become guides."""
    listed = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    guides = next(section["Guides"] for section in config.nav if "Guides" in section)
    guides += sorted(page.name for page in Path(config.docs_dir).glob("*.md") if page.name not in listed)
    return config


def on_files(files: Any, config: Any) -> Any:
    root = Path(config.config_file_path).parent
    for document, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(root / document)))
    files.append(File.generated(config, "commands.md", content=command_page.page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return _LINK.sub(lambda link: site_path(link["path"], page.file.src_uri), markdown)


def site_path(path: str, page: str) -> str:
    """The link on a page of the site to a file that its document names by a path in the repository."""
    document = _DOCUMENTS.get(page, f"docs/{page}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
    found = PAGES.get(target, target.removeprefix("docs/"))
    return posixpath.relpath(found, posixpath.dirname(page) or ".")
