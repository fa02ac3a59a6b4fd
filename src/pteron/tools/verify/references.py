"""Other ways to compute a node: kernels without any feature of the device, or another device."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from pteron.compiler.ir.values import Graph
from pteron.engine.devices.device import Device
from pteron.tools.verify.single_node import SingleNode
from pteron.tools.verify.walk import NodeRun


class NoReference(Exception):
    """The reference cannot compute this node. The message is the reason."""


class Reference(Protocol):
    name: str

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        """Compute what the node should have written. Raises NoReference."""


class DeviceReference:
    """A node alone on a device, with the kernels that need only some of its features."""

    def __init__(self, name: str, device: Device, features: Collection[str]) -> None:
        self.name = name
        self._device = device
        self._features = frozenset(features)

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        alone = SingleNode(graph, run.node)
        with alone.open(self._device, self._features) as method:
            return method.execute(alone.given(run))


def portable(device: Device) -> DeviceReference:
    """The kernels that every device can run: no subgroups, no f16."""
    return DeviceReference("portable", device, ())


def other_device(device: Device) -> DeviceReference:
    return DeviceReference(device.name, device, device.route_features)


class FirstOf:
    """The first reference that can compute a node."""

    def __init__(self, *references: Reference) -> None:
        self._references = references
        self.name = references[0].name

    def outputs(self, graph: Graph, run: NodeRun) -> list[Any]:
        reasons = []
        for reference in self._references:
            try:
                made = reference.outputs(graph, run)
                self.name = reference.name
                return made
            except NoReference as error:
                reasons.append(f"{reference.name}: {error}")
        raise NoReference("; ".join(reasons))
