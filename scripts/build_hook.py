"""Puts the third-party scripts of the pages into a wheel or a source archive when it is built."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VENDOR = "src/pteron/assets/vendor"


class AssetsHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a checkout: `make setup` fetches the scripts
        assets = runpy.run_path(str(Path(self.root) / "scripts" / "assets.py"))
        try:
            assets["copy_assets"]()
        except assets["NoNpm"]:
            self.app.display_warning("npm was not found: this build has no scripts for the pages")
            return
        build_data["artifacts"].append(f"/{VENDOR}/")
