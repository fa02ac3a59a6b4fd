"""The device protocol with wgpu-py."""

from pteron.gpu.wgpu.parsed_header import import_backend

import_backend()
