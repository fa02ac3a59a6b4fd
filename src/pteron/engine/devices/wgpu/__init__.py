"""The device protocol with wgpu-py."""

from pteron.engine.devices.wgpu.parsed_header import import_backend

import_backend()
