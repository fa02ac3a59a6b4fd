#!/usr/bin/env bash
# Installs what the model of GPUs needs (benchmarks/gpu_model), on Debian or Ubuntu: Mesa's Vulkan drivers, whose
# compilers also run without a GPU, the headers of Vulkan and DRM, and a C compiler. Idempotent. For NVIDIA: nvk.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/apt.sh

# RX 7900 and its relatives are known from Mesa 23 on.
mesa_is_new() {
    local version
    version=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null) && dpkg --compare-versions "$version" ge 23
}
has_all() {
    [ -f /usr/include/vulkan/vk_layer.h ] && [ -f /usr/include/libdrm/i915_drm.h ] &&
        command -v "${CC:-cc}" >/dev/null 2>&1 && mesa_is_new
}

if has_all; then exit; fi
command -v apt-get >/dev/null 2>&1 || die "no apt-get: install Mesa's Vulkan drivers, Vulkan's and libdrm's headers, and a C compiler"
as_root true || die "no root: run 'bash scripts/gpu_model.sh' as root"
say "installing Mesa's Vulkan drivers, headers and a C compiler for the model of GPUs (downloads up to 0.1 GB)"
use_backports
apt_install "${suite[@]}" mesa-vulkan-drivers libdrm-dev ||
    die "could not install mesa-vulkan-drivers and libdrm-dev"
apt_install gcc libc6-dev libvulkan-dev || die "could not install gcc and libvulkan-dev"
has_all || die "something is missing after the installation: Mesa is older than 23, or a header is in another place"
