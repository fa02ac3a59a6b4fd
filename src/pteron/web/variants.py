"""The kinds of device that a program is frozen for. The browser takes the first that its adapter can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pteron.compiler.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP
from pteron.errors import InputError


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    route_features: frozenset[str]

    @property
    def needs(self) -> dict[str, Any]:
        """What the adapter must have, in WebGPU's words. Without `software`, any adapter will do."""
        features = {HALF: "shader-f16", SUBGROUP: "subgroups"}
        return {
            "features": sorted(features[f] for f in self.route_features if f in features),
            "lanes": 8 if SUBGROUP in self.route_features else 0,
            **({"software": True} if SOFTWARE in self.route_features else {}),
        }

    def is_more_general_than(self, other: Variant) -> bool:
        """Whether it runs wherever the other does, and elsewhere too."""
        kinds = {GPU, SOFTWARE}
        return (
            self.route_features - kinds < other.route_features - kinds and SOFTWARE not in self.route_features
        )


# In order of preference. All kernels keep to WebGPU's default limits, apart from the sizes of buffers.
VARIANTS = (
    Variant("software", frozenset({SOFTWARE})),
    Variant("full", frozenset({GPU, SUBGROUP, HALF})),
    Variant("gpu", frozenset({GPU})),
)


def chosen(names: Sequence[str]) -> list[Variant]:
    known = {variant.name: variant for variant in VARIANTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"there is no variant {unknown[0]!r}; the variants are {', '.join(known)}")
    return [variant for variant in VARIANTS if variant.name in names]
