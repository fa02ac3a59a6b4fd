"""Read and write the file formats: `.pte` programs, the Vulkan delegates in them, `.ptd` data files."""

from pteron.pte.file import ProgramFile
from pteron.pte.ptd import DataFile, write_ptd
from pteron.pte.vulkan import VkDelegate, read_delegate, write_delegate
from pteron.pte.writer import program_chunks, write_pte

__all__ = [
    "DataFile",
    "ProgramFile",
    "VkDelegate",
    "program_chunks",
    "read_delegate",
    "write_delegate",
    "write_ptd",
    "write_pte",
]
