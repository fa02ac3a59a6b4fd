"""Additional routes for adapters that run shaders on the CPU, such as Mesa's lavapipe.

Such an adapter has subgroups of eight lanes in the vector registers of a CPU. It makes long code of every
load and store, so kernels load each element once, the lanes exchange it, and loops are unrolled in the text.
Weights are interleaved at upload, and words of 64 bits are moved where the adapter has them.

Nothing else imports this package (see `ir.extensions`). Without it, programs give the same results, slower.
"""

from pteron.compiler.ir.dispatch import SOFTWARE, SUBGROUP
from pteron.compiler.ir.extensions import DEVICE_PASSES, KERNEL_FOLDERS
from pteron.compiler.passes import epilogues
from pteron.compiler.software import (  # noqa: F401  they register their routes
    affine,
    attention,
    convolutions,
    interleaved_weights,
    matmul,
    rows,
    wide_words,
)

KERNEL_FOLDERS.append(__name__)
DEVICE_PASSES["epilogues"] = epilogues.fuse, (SOFTWARE, SUBGROUP)
DEVICE_PASSES["interleaved_weights"] = interleaved_weights.fuse, (SOFTWARE, SUBGROUP)
