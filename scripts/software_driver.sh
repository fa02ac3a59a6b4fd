#!/usr/bin/env bash
# Installs Mesa's software Vulkan driver (lavapipe) on Debian or Ubuntu.
#
# Debian 12 ships Mesa 22.3, whose lavapipe is 5-30 times slower than 25.0 in its backports
# suite. The backports suite is added from the machine's own package source, so that a mirror
# or proxy set up there keeps working.
set -euo pipefail
source "$(dirname "$0")/apt.sh"

command -v apt-get >/dev/null 2>&1 ||
    die "no GPU adapter found, and no apt-get to install one: install a Vulkan driver (Mesa's lavapipe runs on any CPU)"
as_root true ||
    die "no GPU adapter found, and no root to install one: run 'apt-get install mesa-vulkan-drivers' as root, then try again"

. /etc/os-release
# apt-get knows the suites whose lists it has read.
has_backports() { apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -x bookworm-backports >/dev/null; }

suite=()
apt_update
if [ "${VERSION_CODENAME:-}" = bookworm ]; then
    if ! has_backports; then
        source=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" {print $2; exit}')
        if [ -n "$source" ]; then
            printf 'deb %s bookworm-backports main\n' "$source" |
                as_root tee /etc/apt/sources.list.d/bookworm-backports.list >/dev/null
            apt_update
        fi
    fi
    if has_backports; then suite=(-t bookworm-backports); fi
fi
say "no GPU adapter found: installing Mesa's software Vulkan driver (50 MB)"
apt_install "${suite[@]}" mesa-vulkan-drivers ||
    die "could not install mesa-vulkan-drivers: install a Vulkan driver by hand, then try again"
