"""Image models of torchvision and timm: the smallest of each kind, and small images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.zoo import libraries
from tests.zoo.model import BATCH, Model, image

TORCHVISION = """
    alexnet densenet121 efficientnet_b0 efficientnet_v2_s googlenet mnasnet0_5 mobilenet_v2 mobilenet_v3_small
    mobilenet_v3_large regnet_x_400mf regnet_y_400mf resnet18 resnet34 resnet50 resnext50_32x4d
    shufflenet_v2_x0_5 squeezenet1_1 vgg11 vgg11_bn wide_resnet50_2 convnext_tiny swin_t swin_v2_t
    inception_v3:299 vit_b_32:64 maxvit_t:224
"""
SEGMENTATION = "fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
CHANNELS_LAST = "resnet18 mobilenet_v2 convnext_tiny"

# name, or name:size for those that cannot take images of 64 x 64.
TIMM = """
    test_byobnet test_convnext test_convnext2 test_convnext3 test_efficientnet test_efficientnet_evos
    test_efficientnet_gn test_efficientnet_ln test_mambaout test_nfnet test_resnet test_vit test_vit2
    test_vit3 test_vit4 resnet10t mobilenetv3_small_050 lcnet_035 tinynet_e regnetx_002 regnety_002
    convnext_atto convnextv2_atto mobilevit_xxs mobilevitv2_050 edgenext_xx_small poolformerv2_s12
    efficientvit_b0 efficientvit_m0 fastvit_t8 ghostnet_050 ghostnetv2_100 hardcorenas_a levit_128s
    pit_ti_224:224 xcit_nano_12_p16_224 mixer_s32_224 gmlp_ti16_224 resmlp_12_224 coat_tiny
    crossvit_tiny_240:240 visformer_tiny twins_svt_small swin_tiny_patch4_window7_224
    swinv2_tiny_window8_256 nf_regnet_b0 eca_nfnet_l0 halonet26t lambda_resnet26t botnet26t_256
    inception_next_atto repvgg_a0 repvit_m0_9 starnet_s1 mambaout_femto hgnetv2_b0 tiny_vit_5m_224
    ese_vovnet19b_slim dla46_c hrnet_w18_small selecsls42 xception41 rexnet_100 semnasnet_075
    mnasnet_small fbnetc_100 mixnet_s efficientnet_lite0 tf_efficientnetv2_b0 efficientnet_b0
    cs3darknet_focus_s cspresnet50 pvt_v2_b0 focalnet_tiny_srf davit_tiny nest_tiny:224 sequencer2d_s
    convmixer_768_32 volo_d1_224 cait_xxs24_224 deit_tiny_patch16_224 eva02_tiny_patch14_224:56
    efficientformer_l1 efficientformerv2_s0 shvit_s1 swiftformer_xs vitamin_small_224 mobileone_s0
    mobilenetv4_conv_small_035 rdnet_tiny vit_tiny_patch16_224 vit_relpos_small_patch16_224
    hiera_tiny_224:224 gernet_s gcresnext26ts gcvit_xxtiny coatnet_pico_rw_224 mvitv2_tiny nextvit_small
    caformer_s18 convformer_s18 poolformer_s12 resnest14d seresnet18 ecaresnet26t skresnet18 res2next50
    vgg11 inception_v4:128 mobilenet_edgetpu_100 mobilenetv2_050 mobilenetv1_100 efficientnet_es
    legacy_seresnet18 dpn48b convit_tiny tnt_s_legacy_patch16_224
"""
SMALL = 64


def sized(names: str) -> Iterator[tuple[str, int]]:
    for text in names.split():
        name, _, size = text.partition(":")
        yield name, int(size or SMALL)


def models() -> Iterator[Model]:
    for name, size in sized(TORCHVISION):
        yield picture(
            f"torchvision/{name}", "torchvision", functools.partial(torchvision_model, name, size), size
        )
    for name, size in sized(SEGMENTATION):
        yield picture(f"torchvision/{name}", "torchvision", functools.partial(segmentation, name), size)
    for name, size in sized(CHANNELS_LAST):
        make = functools.partial(torchvision_model, name, size)
        yield channels_last(picture(f"torchvision/{name} channels_last", "torchvision", make, size))
    yield Model("torchvision/raft_small", "torchvision", raft, pair_of_images, (0, 0), BATCH)
    for name, size in sized(TIMM):
        yield picture(f"timm/{name}", "timm", functools.partial(timm_model, name, size), size)


def picture(name: str, family: str, make: Callable[[], nn.Module], size: int) -> Model:
    return Model(name, family, make, image(size), (0,), BATCH)


def torchvision_model(name: str, size: int) -> nn.Module:
    options: dict[str, Any] = {"num_classes": 10, "weights": None}
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": name == "inception_v3"}
    if name.startswith("vit"):
        options["image_size"] = size
    made: nn.Module = libraries.load().models.get_model(name, **options)
    return made


def segmentation(name: str) -> nn.Module:
    library = libraries.load()
    make = getattr(library.models.segmentation, name)
    made: nn.Module = make(weights=None, weights_backbone=None, num_classes=5)
    return made


def raft() -> nn.Module:
    """Optical flow: the last of three refinements."""
    libraries.load()
    from torchvision.models.optical_flow import raft_small

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.raft = raft_small(weights=None)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            flow: torch.Tensor = self.raft(a, b, num_flow_updates=3)[-1]
            return flow

    return Flow()


def pair_of_images(n: int) -> tuple[torch.Tensor, ...]:
    (first,) = image(128)(n)
    return first, first.roll(3, 3)


def channels_last(model: Model) -> Model:
    def make() -> nn.Module:
        module: nn.Module = model.make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module

    def inputs(n: int) -> tuple[torch.Tensor, ...]:
        return tuple(x.to(memory_format=torch.channels_last) for x in model.inputs(n))

    return Model(model.name, model.family, make, inputs, model.live, model.sizes)


def timm_model(name: str, size: int) -> nn.Module:
    libraries.load()
    import timm

    try:
        made: nn.Module = timm.create_model(name, pretrained=False, num_classes=10, img_size=size)
    except TypeError:  # a network for images of any size
        made = timm.create_model(name, pretrained=False, num_classes=10)
    return made
