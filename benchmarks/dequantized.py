"""A GGUF file with the same weights as float32, so that other programs compute with exactly these numbers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

FILE_TYPE = "general.file_type"
ALL_F32 = 0
OF_WRITER = ("GGUF.", "general.architecture")  # the writer adds these facts itself


def write_dequantized(source: Path, target: Path) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name == FILE_TYPE:
            writer.add_file_type(ALL_F32)
        elif not name.startswith(OF_WRITER):
            kind, element = field.types[0], field.types[-1]
            is_array = kind == gguf.GGUFValueType.ARRAY
            writer.add_key_value(name, field.contents(), kind, sub_type=element if is_array else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
