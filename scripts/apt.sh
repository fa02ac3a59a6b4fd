# Debian packages, for the other scripts: they read this file with `source`.

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

# A new machine has no lists of packages, and an old machine has old ones: read them before the first installation.
apt_update() {
    as_root apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed: old lists of packages are used"
    apt_lists_are_new=1
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ -n "${apt_lists_are_new:-}" ] || apt_update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}
