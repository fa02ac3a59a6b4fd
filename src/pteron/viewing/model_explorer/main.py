"""The adapter. Model Explorer finds it here by the name of this file."""

from __future__ import annotations

from typing import Any

from dacite import from_dict
from model_explorer import Adapter, AdapterMetadata
from model_explorer.graph_builder import Graph

from pteron.report.inspect import open_file
from pteron.viewing.model_explorer.explorer_graph import explorer_graph
from pteron.viewing.scene import Scene


class PteronAdapter(Adapter):  # type: ignore[misc]
    metadata = AdapterMetadata(
        id="pteron",
        name="Pteron",
        description="ExecuTorch programs as Pteron runs them",
        fileExts=["pte"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, list[Graph]]:
        with open_file(model_path) as file:
            names = [
                name for name in file.method_names if file.plan(name).operators or file.plan(name).delegates
            ]
            graphs = [explorer_graph(Scene(file, name)) for name in names]
        return {"graphs": [from_dict(Graph, graph) for graph in graphs]}
