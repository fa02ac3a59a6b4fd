"""The Config of a decoder, from its config.json."""

from __future__ import annotations

from math import sqrt

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.architecture import Architecture
from pteron.llm.architectures.config import Config, Experts, Layer, Rotary, check_config
from pteron.llm.architectures.tensors import Tensors
from pteron.llm.hf.rope_parameters import read_rotary
from pteron.llm.hf.settings import Settings

# Hugging Face's names of activations, and ours.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
WIDEST_HEAD = 65536
FULL, SLIDING = "full_attention", "sliding_attention"


# What files of a family may leave out.
DEFAULTS: dict[str, dict[str, object]] = {
    "gemma3": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "query_pre_attn_scalar": 256,
    }
}


def read_decoder_config(settings: Settings, family: Architecture, name: str, tensors: Tensors) -> Config:
    complete = {**DEFAULTS.get(family.name, {}), **settings.entries}
    return _Reader(Settings(complete, settings.source), family, tensors).config(name)


class _Reader:
    def __init__(self, settings: Settings, family: Architecture, tensors: Tensors) -> None:
        self.settings = settings
        self.family = family
        self.tensors = tensors
        self.width = settings.require(int, "hidden_size", "n_embd")
        self.heads = settings.require(int, "num_attention_heads", "n_head")
        self.head_size = settings.get(int, "head_dim", default=self.width // max(self.heads, 1))
        self.context = settings.require(int, "max_position_embeddings", "n_positions")
        self.layers = settings.require(int, "num_hidden_layers", "n_layer")
        # Before anything of these sizes is made.
        if not 0 < self.layers <= len(tensors.tensor_names) or not 0 < self.head_size <= WIDEST_HEAD:
            raise FormatError(
                f"{settings.source}: {self.layers} layers with heads of {self.head_size} elements do not fit "
                f"{len(tensors.tensor_names)} tensors"
            )

    def config(self, name: str) -> Config:
        settings, family = self.settings, self.family
        self._check_activation()
        scalar = settings.find(float, "query_pre_attn_scalar")
        embedding = sqrt(max(self.width, 0)) if family.scales_embedding else 1.0
        logits = settings.get(float, "logits_scaling", default=1.0)
        config = Config(
            architecture=family,
            name=name,
            layers=self._layers(),
            width=self.width,
            hidden=settings.get(int, "intermediate_size", "n_inner", default=4 * self.width),
            heads=self.heads,
            kv_heads=settings.get(int, "num_key_value_heads", default=self.heads),
            head_size=self.head_size,
            vocabulary=self.tensors.shape("token_embd.weight")[0],
            context=self.context,
            epsilon=settings.require(
                float, "rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"
            ),
            experts=self._experts(),
            attention_scale=scalar**-0.5 if scalar else settings.find(float, "attention_multiplier"),
            attention_softcap=settings.find(float, "attn_logit_softcapping"),
            logit_softcap=settings.find(float, "final_logit_softcapping"),
            embedding_scale=settings.get(float, "embedding_multiplier", default=embedding),
            residual_scale=settings.get(float, "residual_multiplier", default=1.0),
            logit_scale=1 / logits if logits else 0.0,
        )
        return check_config(config, settings.source)

    def _experts(self) -> Experts | None:
        settings, family = self.settings, self.family
        count = settings.find(int, "num_local_experts", "num_experts")
        if not count:
            return None
        shared = settings.find(int, "shared_expert_intermediate_size")
        return Experts(
            count=count,
            used=settings.require(int, "num_experts_per_tok"),
            hidden=settings.require(int, "moe_intermediate_size", "intermediate_size"),
            shared_hidden=(shared or 0) if family.has_shared_expert else 0,
            normalized=settings.get(bool, "norm_topk_prob", default=family.normalizes_experts),
        )

    def _check_activation(self) -> None:
        """A family has one. The first files of gemma name the wrong one, which nothing has ever used."""
        stated = self.settings.find(str, "hidden_activation", "hidden_act", "activation_function")
        wanted = self.family.activation
        meant = ACTIVATIONS.get(stated, stated) if stated else wanted
        if meant != wanted and not (self.family.name == "gemma" and meant == "gelu"):
            raise UnsupportedError(
                f"{self.settings.source}: the activation {stated!r} is not supported for {self.family.name}, "
                f"which has {wanted!r}"
            )

    # -- layers ---------------------------------------------------------------------------------

    def _layers(self) -> tuple[Layer, ...]:
        kinds, turned = self._kinds(self.layers), self._rotated(self.layers)
        window = self.settings.find(int, "sliding_window")
        rotations: dict[str, Rotary | None] = {}
        if not self.family.learned_positions:
            rotations = {kind: self._rotary(kind) for kind in dict.fromkeys(kinds)}
        return tuple(
            Layer(rotations.get(kind) if is_turned else None, window if kind == SLIDING else None)
            for kind, is_turned in zip(kinds, turned, strict=True)
        )

    def _kinds(self, count: int) -> list[str]:
        """Of each layer, whether it sees all keys or a window. Files before this entry state it otherwise."""
        settings = self.settings
        stated = settings.find(list, "layer_types")
        if stated is not None:
            if len(stated) != count or not set(stated) <= {FULL, SLIDING}:
                raise FormatError(
                    f"{settings.source}: 'layer_types' should have {count} of {FULL}, {SLIDING}"
                )
            return stated
        if not settings.find(int, "sliding_window") or not settings.get(
            bool, "use_sliding_window", default=True
        ):
            return [FULL] * count
        if self.family.full_every > 1:
            every = settings.get(int, "sliding_window_pattern", default=self.family.full_every)
            return [FULL if (number + 1) % every == 0 else SLIDING for number in range(count)]
        first = settings.get(int, "max_window_layers", default=0)
        return [SLIDING if number >= first else FULL for number in range(count)]

    def _rotated(self, count: int) -> list[bool]:
        """Of each layer, whether it rotates queries and keys."""
        stated = self.settings.find(list, "no_rope_layers")  # which has 1 for those that do
        if stated:
            if len(stated) != count:
                raise FormatError(f"{self.settings.source}: 'no_rope_layers' should have {count} entries")
            return [bool(each) for each in stated]
        every = self.family.unrotated_every
        if every:
            every = self.settings.get(int, "no_rope_layer_interval", default=every)
        return [not every or (number + 1) % every != 0 for number in range(count)]

    def _rotary(self, kind: str) -> Rotary:
        """The rotation of layers of a kind. Files since 2025 have `rope_parameters`, older ones several."""
        settings = self.settings
        parameters = settings.part("rope_parameters")
        if kind in parameters.entries:
            parameters = parameters.part(kind)
        base = settings.get(float, "rope_theta", "rotary_emb_base", default=10000.0)
        if not parameters.entries:
            is_local = kind == SLIDING and self.family.local_base is not None
            if is_local:
                base = settings.get(float, "rope_local_base_freq", default=self.family.local_base or base)
            else:
                parameters = settings.part("rope_scaling")
        share = parameters.get(
            float,
            "partial_rotary_factor",
            default=settings.get(float, "partial_rotary_factor", "rope_pct", default=1.0),
        )
        return read_rotary(
            parameters,
            parameters.get(float, "rope_theta", default=base),
            int(self.head_size * share),
            self.context,
            settings.find(int, "original_max_position_embeddings"),
        )
