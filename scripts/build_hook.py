"""Puts the third-party scripts of the pages into a wheel or a source archive when it is built."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VENDOR = "src/pteron/_util/assets/vendor"


class AssetsHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a checkout: `make setup` fetches the scripts
        if os.environ.get("PTERON_WITHOUT_SCRIPTS") == "1":
            return
        sys.path.insert(0, str(Path(self.root) / "scripts"))
        from assets import copy_assets
        from npm_packages import DownloadError

        # pip shows what a build prints only if the build fails. So a warning would be lost.
        try:
            copy_assets()
        except DownloadError as error:
            sys.exit(
                f"\nThe pages of `pteron view` and `pteron web` need scripts from npm, and {error}.\n"
                f"To build without these pages, set the environment variable PTERON_WITHOUT_SCRIPTS=1.\n"
            )
        build_data["artifacts"].append(f"/{VENDOR}/")
