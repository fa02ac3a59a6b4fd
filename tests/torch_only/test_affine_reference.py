"""The reference for coded weights, compared with the decoded weights of the converter."""

from __future__ import annotations

import numpy as np
import pytest

from pteron.tools.verify.catalogue.products import embedding_affine, linear_affine
from tests.ops.test_affine import FORMS, OTHER_FORMS, coded

ALL = {**FORMS, **OTHER_FORMS, "groups that are no whole words": {"bits": 6, "group": 20, "minima": True}}


DEPTHS = {20: 60}  # others: 256


@pytest.mark.parametrize("form", ALL)
def test_weights_are_decoded_as_by_the_converter(form: str) -> None:
    weight = coded(7, DEPTHS.get(ALL[form]["group"], 256), **ALL[form])
    matrix = weight.dequantize()
    table = None if weight.table is None else np.array(weight.table)
    parts = (weight.words, weight.scales, weight.bits, weight.group_size, weight.zero, table)
    rows = np.array([[6, 0], [3, 3]])
    found = embedding_affine(*parts, rows, width=weight.depth)
    np.testing.assert_allclose(found, matrix[rows], rtol=1e-6)
    random = np.random.default_rng(0)
    x, bias = random.standard_normal((5, weight.depth)), random.standard_normal(7)
    np.testing.assert_allclose(linear_affine(x, *parts, bias), x @ matrix.T + bias, rtol=1e-5, atol=1e-5)
