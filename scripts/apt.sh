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

# apt-get knows the suites whose lists it has read.
has_backports() { apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -x bookworm-backports >/dev/null; }

# Debian 12 ships Mesa 22.3, which is too old and slow. Newer Mesa is in its backports suite, which is added from the
# machine's own package source, so that a mirror or proxy set up there keeps working. Sets the array `suite`.
use_backports() {
    local source
    suite=()
    apt_update
    if [ "$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")" != bookworm ]; then return; fi
    if ! has_backports; then
        source=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" {print $2; exit}')
        if [ -n "$source" ]; then
            printf 'deb %s bookworm-backports main\n' "$source" |
                as_root tee /etc/apt/sources.list.d/bookworm-backports.list >/dev/null
            apt_update
        fi
    fi
    if has_backports; then suite=(-t bookworm-backports); fi
}
