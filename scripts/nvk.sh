#!/usr/bin/env bash
# Installs Mesa's driver for NVIDIA (NVK) for the model of GPUs (benchmarks/gpu_model): Debian 13 with the Mesa of its
# backports, in a folder, because Debian 12's Mesa has no NVK. The machine's own libraries stay as they are. As root, on
# Debian 12 or newer. Idempotent; takes two minutes, and 700 MB.
#
#   scripts/nvk.sh [/opt/nvk-root]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/apt.sh
root=${1:-/opt/nvk-root}
driver=$root/usr/lib/x86_64-linux-gnu/libvulkan_nouveau.so

if [ -f "$driver" ]; then exit; fi
[ "$(id -u)" = 0 ] || die "no root: run 'bash scripts/nvk.sh' as root"
say "installing Mesa's driver for NVIDIA in $root (downloads 0.3 GB)"
apt_install debootstrap debian-archive-keyring || die "could not install debootstrap"
source=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 !~ /security/ && !found {print $2; found = 1}')
if [ ! -e "$root/etc/debian_version" ] || [ -e "$root/debootstrap" ]; then
    debootstrap --variant=minbase trixie "$root" "$source" >/dev/null || die "debootstrap failed: see $root/debootstrap/debootstrap.log"
fi
echo "deb $source trixie-backports main" >"$root/etc/apt/sources.list.d/backports.list"
chroot "$root" apt-get update -qq
# libdrm-dev: the headers with the kernel driver's questions.
DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" apt-get install -y -qq --no-install-recommends \
    -t trixie-backports mesa-vulkan-drivers libvulkan1 libdrm-dev >/dev/null
[ -f "$driver" ] || die "the installed Mesa has no NVK"
