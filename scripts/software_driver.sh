#!/usr/bin/env bash
# Installs Mesa's software Vulkan driver (lavapipe) on Debian or Ubuntu.
#
# The lavapipe of Mesa 22.3 is 5-30 times slower than that of 25.0.
set -euo pipefail
source "$(dirname "$0")/apt.sh"

command -v apt-get >/dev/null 2>&1 ||
    die "no GPU adapter found, and no apt-get to install one: install a Vulkan driver (Mesa's lavapipe runs on any CPU)"
as_root true ||
    die "no GPU adapter found, and no root to install one: run 'apt-get install mesa-vulkan-drivers' as root, then try again"

use_backports
say "no GPU adapter found: installing Mesa's software Vulkan driver (50 MB)"
apt_install "${suite[@]}" mesa-vulkan-drivers ||
    die "could not install mesa-vulkan-drivers: install a Vulkan driver by hand, then try again"
