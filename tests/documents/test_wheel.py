"""The built wheel is enough: installed into an empty environment, its commands run and its pages open."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.llm.tiny_models import LLAMA, write_gguf
from tests.server.running import free_port, wait_until
from tests.support import DATA
from tests.support.browser import opened, serving
from tests.support.documents import ROOT

PROGRAM = DATA / "dyn_rms.pte"
VENDORED = {f"{name}.{kind}" for name in ("dagre", "jinja", "tokenizers") for kind in ("js", "LICENSE")}


class Installed:
    """An environment with the wheel. It sees the other packages of this one, but not the checkout."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder = folder
        run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
        python = str(folder / "venv" / "bin" / "python")
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "-q",
                "--python",
                python,
                "install",
                "--no-deps",
                "--no-index",
                wheel,
            ]
        )
        self.packages = next((folder / "venv").glob("lib/python*/site-packages"))
        (self.packages / "others.pth").write_text(sysconfig.get_path("purelib"))
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def command(self, *words: str | Path) -> list[str | Path]:
        return [self.folder / "venv" / "bin" / "pteron", *words]

    def run(self, *words: str | Path) -> str:
        return run(self.command(*words), cwd=self.folder, env=self.environment)

    @contextmanager
    def serving(self, *words: str | Path) -> Iterator[str]:
        """The address that a command prints. The command ends with the context."""
        with subprocess.Popen(
            self.command(*words), cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True
        ) as server:
            assert server.stderr is not None
            output = ""
            for line in server.stderr:
                output += line
                if found := re.search(r"http://[\w.]+:\d+", line):
                    break
            else:
                pytest.fail(output)
            try:
                yield found[0]
            finally:
                server.terminate()
                server.communicate(timeout=60)


def run(command: list[Any], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    write_gguf(folder / "model.gguf", replace(LLAMA, context=512))
    return Installed(wheel, folder)


def test_it_has_every_file_of_the_package_and_the_scripts_of_others(wheel: Path) -> None:
    source = ROOT / "src"
    own = {path.relative_to(source).as_posix() for path in (source / "pteron").rglob("*") if path.is_file()}
    wanted = {name for name in own if not name.endswith(".pyc")}
    wanted |= {f"pteron/_util/assets/vendor/{name}" for name in VENDORED}
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())


def test_commands_run(installed: Installed) -> None:
    python = [installed.folder / "venv" / "bin" / "python", "-c", "import pteron; print(pteron.__file__)"]
    where = run(python, cwd=installed.folder, env=installed.environment)
    assert Path(where.strip()).is_relative_to(installed.packages)
    assert "can run" in installed.run("check", PROGRAM)
    assert "rms_norm" in installed.run("inspect", PROGRAM, "--live", "7")
    assert installed.run("run", PROGRAM, "--random")
    assert installed.run("generate", "model.gguf", "-p", "Once", "-n", "4")


def test_nothing_is_sent(installed: Installed, tmp_path: Path) -> None:
    """A connection to another machine, or a question for its address, ends the command."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo') and '127.0.0.1' not in str(arguments):\n"
        "        raise RuntimeError(f'it wants to connect: {event} {arguments}')\n"
        "sys.addaudithook(refuse)\n"
    )
    watched = copy(installed)
    watched.environment = {**installed.environment, "PYTHONPATH": str(tmp_path)}
    watched.run("run", PROGRAM, "--random")
    watched.run("doctor")
    watched.run("generate", "model.gguf", "-p", "Once", "-n", "4")
    asks = [
        watched.folder / "venv" / "bin" / "python",
        "-c",
        "import socket; socket.getaddrinfo('a.example', 1)",
    ]
    assert (
        "it wants to connect"
        in subprocess.run(asks, env=watched.environment, capture_output=True, text=True).stderr
    )


@pytest.mark.browser
def test_the_page_of_a_program(installed: Installed, browser: Any) -> None:
    with installed.serving("view", PROGRAM, "--port", "0", "--no-open") as url, opened(browser, url) as page:
        page.locator("body[aria-busy=false]").wait_for()
        page.keyboard.press("/")
        page.locator("#query").fill("rms_norm")
        page.keyboard.press("Enter")
        page.locator("#details h3").wait_for()


@pytest.mark.browser
def test_the_chat_page_of_the_server(installed: Installed, browser: Any) -> None:
    port = free_port()
    with installed.serving("serve", "model.gguf", "--port", str(port)) as url:
        wait_until(lambda: listens("127.0.0.1", port))
        assert not listens("127.0.0.2", port), "without --host, only this address is for it"
        with opened(browser, url) as page:
            page.get_by_role("heading", name="How can I help?").wait_for()


def listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


@pytest.mark.browser
@pytest.mark.parametrize(
    ("model", "ready"),
    [(str(PROGRAM), "#run:not([disabled])"), ("model.gguf", "#prompt")],
    ids=["program", "chat"],
)
def test_a_static_site(installed: Installed, browser: Any, model: str, ready: str, tmp_path: Path) -> None:
    installed.run("web", model, tmp_path / "site", "--variant", "gpu")
    with serving(tmp_path / "site") as url, opened(browser, url) as page:
        page.locator(ready).wait_for()


def test_a_build_without_the_scripts_says_what_is_missing(tmp_path: Path) -> None:
    """It fails: pip shows the output of a build that fails, and of no other."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("vendor", "node_modules", "__pycache__")
    for name in ("src", "scripts", "javascript"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    nowhere = {"NPM_CONFIG_REGISTRY": (tmp_path / "nowhere").as_uri()}
    refused = pip_wheel(tmp_path, nowhere)
    assert refused.returncode != 0
    shown = refused.stdout + refused.stderr
    assert "@dagrejs/dagre 3.1.1 cannot be downloaded" in shown, shown
    assert "set the environment variable PTERON_WITHOUT_SCRIPTS=1" in shown
    assert pip_wheel(tmp_path, {**nowhere, "PTERON_WITHOUT_SCRIPTS": "1"}).returncode == 0


def pip_wheel(checkout: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    command += ["-w", str(checkout / "dist"), str(checkout)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
