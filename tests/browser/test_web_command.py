"""`pteron web --serve`: the site is served until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from tests.support import DATA


def test_the_site_is_served_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pteron", "web", str(DATA / "dyn_rms.pte"), str(tmp_path)]
    options = ["--serve", "--port", "0", "--variant", "gpu"]
    # The "browser" only writes the address that it should open.
    environment = os.environ | {"BROWSER": "echo opened %s"}
    with subprocess.Popen(
        [*command, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        output = ""
        for line in server.stdout:
            output += line
            if opened := re.match(r"opened (http://localhost:\d+/)", line):
                break
        assert opened, output
        with urlopen(opened[1]) as page:
            assert b"<title>" in page.read()
        with urlopen(opened[1] + "model.json") as manifest:
            assert json.load(manifest)["variants"][0]["name"] == "gpu"
        server.send_signal(signal.SIGINT)
        output += server.communicate(timeout=60)[0]
    assert server.returncode == 0, output
    assert f"{opened[1]} (Ctrl-C ends it)" in output
    assert "Traceback" not in output
