"""The graph of a method in the format of Model Explorer."""

from __future__ import annotations

from typing import Any

from pteron.viewing.scene import Scene


def explorer_graph(scene: Scene) -> dict[str, Any]:
    """All nodes at the largest shape, with the routes and kernels of a GPU."""
    graph, live = scene.graph_json(), scene.live_json({})
    nodes = {
        **{f"i{n}": _node(f"i{n}", port["name"], "inputs") for n, port in enumerate(graph["inputs"])},
        **{str(n): _operator(scene, graph, n) for n in range(len(graph["nodes"]))},
        **{f"o{n}": _node(f"o{n}", port["name"], "outputs") for n, port in enumerate(graph["outputs"])},
    }
    outputs: dict[tuple[str, int], str] = {}
    for source, target, value in graph["edges"]:
        sent = nodes[str(source)]["outputsMetadata"]
        if (str(source), value) not in outputs:
            outputs[str(source), value] = str(len(sent))
            shape = live["values"].get(value, graph["values"][value].get("shape"))
            dtype = graph["values"][value].get("dtype", "integer")
            text = f"{dtype}{shape}"
            sent.append({"id": str(len(sent)), "attrs": [{"key": "tensor_shape", "value": text}]})
        taken = nodes[str(target)]["incomingEdges"]
        taken.append(
            {
                "sourceNodeId": str(source),
                "sourceNodeOutputId": outputs[str(source), value],
                "targetNodeInputId": str(len(taken)),
            }
        )
    return {"id": graph["name"], "nodes": list(nodes.values())}


def _operator(scene: Scene, graph: dict[str, Any], index: int) -> dict[str, Any]:
    details = scene.node_json(index, {})
    attributes = {a["name"]: a["text"] for a in details["arguments"] if "text" in a}
    attributes["route"] = details["route"] or "none"
    for dispatch in details["dispatches"]:
        attributes[f"kernel {dispatch['kernel']}"] = f"grid {dispatch['grid']}"
    if details["fused_from"]:
        attributes["fused from"] = ", ".join(source["operator"] for source in details["fused_from"])
    group, path = graph["nodes"][index]["group"], []
    while group is not None:
        path.append(graph["groups"][group]["name"])
        group = graph["groups"][group]["parent"]
    return _node(str(index), details["operator"], "/".join(reversed(path)), attributes)


def _node(name: str, label: str, namespace: str, attributes: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "id": name,
        "label": label,
        "namespace": namespace,
        "attrs": [{"key": key, "value": value} for key, value in (attributes or {}).items()],
        "incomingEdges": [],
        "outputsMetadata": [],
    }
