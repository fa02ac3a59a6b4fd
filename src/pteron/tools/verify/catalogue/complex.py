"""Complex numbers and Fourier transforms."""

from __future__ import annotations

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.catalogue.arguments import F, X
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.types import COMPLEX

case("view_as_real_copy", lambda n: [X(n, 3)], lambda x: np.stack([x.real, x.imag], -1), COMPLEX, COMPLEX)
sample("view_as_complex_copy", lambda n: [F(n, 3, 2), X(n, 3)], COMPLEX)
case("_conj_physical", lambda n: [X(n, 3)], np.conj, COMPLEX, COMPLEX)
sample("_conj_physical", lambda n: [X(n, 3), X(n, 3)], tuple(DType))
sample("pteron.complex_add pteron.complex_sub", lambda n: [X(n, 3), X(3), 2, X(n, 3)], COMPLEX)
case("pteron.complex_mul", lambda n: [X(n, 3), X(3)], np.multiply, COMPLEX, COMPLEX)
sample("pteron.complex_mul pteron.complex_div", lambda n: [X(n, 3), F(3), X(n, 3)], COMPLEX)
sample("pteron.complex_abs", lambda n: [X(n, 3), F(n, 3)], COMPLEX)
sample("pteron.complex_cast", lambda n: [F(n, 3), *[None] * 6, X(n, 3)], COMPLEX)
case("_fft_r2c", lambda n: [F(n, 15), [1], 0, True], lambda x, *_: np.fft.rfft(x), COMPLEX, COMPLEX)
case("_fft_c2r", lambda n: [X(n, 8), [1], 2, 15], lambda x, *_: np.fft.irfft(x, 15), COMPLEX, COMPLEX)
sample("_fft_c2r", lambda n: [X(n, 4), [0, 1], 2, 6, F(n, 6)], COMPLEX)
sample("_fft_c2c", lambda n: [X(n, 6), [0, 1], 1, False, X(n, 6)], COMPLEX)
