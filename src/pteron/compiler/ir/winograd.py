"""Winograd's algorithm F(4x4, 3x3): 16 results of a 3 x 3 window from 36 products instead of 144.

An image is divided into tiles of 4 x 4 neighbouring results. The 6 x 6 inputs of a tile and the filter are
transformed, then multiplied element by element. The products are transformed to the results. The transforms
use the points 0, 1, -1, 2, -2 and infinity. Kernels have those of inputs and results; that of the filters is
computed at upload.
"""

TILE = 4  # rows and columns of results
FACTORS = 6  # rows and columns of products

# Transforms a column of a filter, and then a row.
FILTERS = (
    (1 / 4, 0.0, 0.0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0.0, 0.0, 1.0),
)
