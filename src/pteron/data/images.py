"""An image as the array that a program takes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from pteron._util.extras import needs
from pteron.api.method_info import IOInfo
from pteron.errors import InputError


def image_array(
    source: Any, info: IOInfo, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()
) -> np.ndarray[Any, Any]:
    """An image as [3, height, width] or [height, width, 3], in the size that the input has.

    source: a path, or the bytes of a file. Floats are in 0..1, less `mean` and divided by `std`.
    """
    with needs("data", "to read images"):
        from PIL import Image
    shape = info.max_shape[1:]
    if len(shape) != 3 or 3 not in (shape[0], shape[2]):
        raise InputError(f"{info} takes no images: expected [batch, 3, height, width] or 3 at the end")
    channels_first = shape[0] == 3
    height, width = shape[1:] if channels_first else shape[:2]
    file = io.BytesIO(source) if isinstance(source, bytes) else Path(source)
    try:
        with Image.open(file) as image:
            resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"the image cannot be read: {error}") from None
    pixels = np.asarray(resized)
    if info.dtype != "uint8":
        pixels = pixels.astype(np.float32) / 255
        pixels = (pixels - np.array(mean or 0, np.float32)) / np.array(std or 1, np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) if channels_first else pixels
