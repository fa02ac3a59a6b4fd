"""The files for GitHub follow its schemas, pin what they use, and call what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.missing import missing

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "dependabot": [GITHUB / "dependabot.yml"],
    "github-issue-forms": FORMS,
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schema(schema: str) -> None:
    if find_spec("check_jsonschema") is None:
        missing("check-jsonschema is not installed")
    name = schema if schema.startswith("custom.") else f"vendor.{schema}"
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name, *map(str, SCHEMAS[schema])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actions_are_pinned_to_commits() -> None:
    """A tag can be moved to other code. The comment says which version a commit is."""
    uses = [line for path in WORKFLOWS for line in path.read_text("utf-8").splitlines() if "uses:" in line]
    assert len(uses) > 10
    loose = [
        line for line in uses if not re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
    ]
    assert not loose
    commits = {match[0] for line in uses if (match := re.search(r"[\w-]+/[\w-]+@.*", line))}
    assert len(commits) == len({commit.partition("@")[0] for commit in commits}), "one version of each action"


def test_what_they_run_exists() -> None:
    texts = [path.read_text("utf-8") for path in (*WORKFLOWS, ROOT / ".pre-commit-config.yaml")]
    targets = {name for text in texts for name in re.findall(r"\bmake ([a-z][a-z-]*)", text)}
    assert {"test", "test-all", "conformance", "fuzz", "zoo", "differential", "coverage", "smoke"} <= targets
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert targets <= known
    named = {name for text in texts for name in re.findall(r"\btests/[\w/.]+", text)}
    assert named and all((ROOT / name).exists() for name in named)
