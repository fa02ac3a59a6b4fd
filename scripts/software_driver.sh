#!/usr/bin/env bash
# Installs Mesa's software Vulkan driver (lavapipe) on Debian or Ubuntu.
#
# Debian 12 ships Mesa 22.3, whose lavapipe is 5-30 times slower than 25.0 in its backports
# suite. The backports suite is added from the machine's own package source, so that a mirror
# or proxy set up there keeps working.
set -euo pipefail

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v apt-get >/dev/null 2>&1 ||
    die "no GPU adapter found, and no apt-get to install one: install a Vulkan driver (Mesa's lavapipe runs on any CPU)"
if [ "$(id -u)" = 0 ]; then root=(); elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then root=(sudo); else
    die "no GPU adapter found, and no root to install one: run 'apt-get install mesa-vulkan-drivers' as root, then try again"
fi

. /etc/os-release
export DEBIAN_FRONTEND=noninteractive
"${root[@]}" apt-get update -qq

suite=()
if [ "${VERSION_CODENAME:-}" = bookworm ]; then
    if ! apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -qx bookworm-backports; then
        source=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" {print $2; exit}')
        if [ -n "$source" ]; then
            printf 'deb %s bookworm-backports main\n' "$source" |
                "${root[@]}" tee /etc/apt/sources.list.d/bookworm-backports.list >/dev/null
            "${root[@]}" apt-get update -qq
        fi
    fi
    apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -qx bookworm-backports && suite=(-t bookworm-backports)
fi
say "no GPU adapter found: installing Mesa's software Vulkan driver"
"${root[@]}" apt-get install -y -qq "${suite[@]}" mesa-vulkan-drivers >/dev/null ||
    die "could not install mesa-vulkan-drivers: install a Vulkan driver by hand, then try again"
