"""The reference for coded weights, compared with the decoded weights of the converter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pteron.llm.gguf.codes import Coded
from pteron.verifying.affine_reference import embedding_affine, linear_affine
from tests.ops.test_affine import FORMS, OTHER_FORMS, coded

ALL = {**FORMS, **OTHER_FORMS, "groups that are no whole words": {"bits": 6, "group": 20, "minima": True}}


DEPTHS = {20: 60}  # others: 256


def parts(weight: Coded) -> tuple[torch.Tensor, torch.Tensor, int, int, int, torch.Tensor | None]:
    """As `TorchReference` gives them: integers have 64 bits."""
    words, scales = torch.from_numpy(weight.words).long(), torch.from_numpy(weight.scales)
    table = None if weight.table is None else torch.tensor(weight.table, dtype=torch.float32)
    if not scales.is_floating_point():
        scales = scales.long()
    return words, scales, weight.bits, weight.group_size, weight.zero, table


@pytest.mark.parametrize("form", ALL)
def test_weights_are_decoded_as_by_the_converter(form: str) -> None:
    weight = coded(7, DEPTHS.get(ALL[form]["group"], 256), **ALL[form])
    matrix = weight.dequantize()
    rows = torch.tensor([[6, 0], [3, 3]])
    found = embedding_affine(*parts(weight), rows, width=weight.depth)
    np.testing.assert_allclose(found, matrix[rows], rtol=1e-6)
    x, bias = torch.randn(5, weight.depth), torch.randn(7)
    want = torch.nn.functional.linear(x.double(), torch.from_numpy(matrix).double(), bias.double())
    np.testing.assert_allclose(linear_affine(x, *parts(weight), bias), want, rtol=1e-5, atol=1e-5)
