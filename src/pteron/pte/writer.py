"""Write `.pte` files: the reverse of `file`."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pteron.pte import schema
from pteron.pte.container import Blob, file_chunks, parts_of, place, write_file
from pteron.pte.flat import encode
from pteron.pte.header import RESERVE, write_header
from pteron.pte.validate import check_program


def program_chunks(
    program: schema.Program, segments: Sequence[Blob], *, alignment: int = 16
) -> Iterator[Blob]:
    """The bytes of a `.pte` file as a sequence of pieces. `program.segments` is computed from `segments`."""
    placed = place(segments, alignment)
    program = replace(program, segments=placed)
    check_program(program)
    head = bytearray(encode(program, identifier=schema.IDENTIFIER, reserve=RESERVE))
    parts = parts_of(len(head), placed, alignment)
    write_header(head, parts)
    return file_chunks(head, parts, placed, segments)


def write_pte(
    path: str | os.PathLike[str],
    program: schema.Program,
    segments: Sequence[Blob] = (),
    *,
    alignment: int = 16,
) -> None:
    """Write a program and its segments. Segments are streamed. A file is written completely or not at all.

    Stock ExecuTorch runs only programs with a `constant_segment` that has at least one offset.
    """
    write_file(path, program_chunks(program, segments, alignment=alignment))
