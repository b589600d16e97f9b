# Functions that scripts source to install missing packages and to build.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { if [ -t 1 ]; then printf '\033[1m== %s\033[0m\n' "$*"; else printf '== %s\n' "$*"; fi; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "installing packages needs root: run as root or install sudo"
  fi
}

# apt_get ARGUMENT... runs apt-get as root. While another process holds one of apt's or dpkg's
# locks, it tries again for SLUICE_APT_WAIT_S seconds at most. apt's own option DPkg::Lock::Timeout
# does not cover the locks of the package lists and of the downloaded archives, at which apt 2.6
# fails at once.
apt_get() {
  local bound=${SLUICE_APT_WAIT_S:-900} began=$SECONDS told=false errors status locked
  as_root true || return 1
  while true; do
    status=0
    { errors=$(as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" 2>&1 >&3); } 3>&1 || status=$?
    locked=$(grep -m 1 -E 'Could not get lock|locked by another process' <<<"$errors") || true
    if [ "$status" -eq 0 ] || [ -z "$locked" ] || [ $((SECONDS - began)) -ge "$bound" ]; then break; fi
    $told || printf 'waiting up to %s s for another process: %s\n' "$bound" "$locked" >&2
    told=true
    sleep 1
  done
  [ -z "$errors" ] || printf '%s\n' "$errors" >&2
  return "$status"
}

# install_packages LIST... installs the Debian packages named in the files LIST that are missing.
install_packages() {
  local wanted missing=() package
  wanted=$(sed 's/#.*//' "$@")
  for package in $wanted; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || fail "missing ${missing[*]}; only Debian's apt-get is supported"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  apt_get update -qq || fail "apt-get update failed"
  apt_get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || fail "apt-get install failed"
}

# build PRESET TARGET... [-- CMAKE-OPTION...] configures the preset and builds the targets.
build() {
  local preset=$1 targets=() log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  mkdir -p build
  log=build/configure-$preset.log
  cmake --preset "$preset" "$@" >"$log" 2>&1 || { cat "$log"; fail "configuring $preset failed"; }
  # With these settings ccache takes the compiler's list of headers instead of running the
  # preprocessor, and hashes each header once.
  CCACHE_DEPEND=1 CCACHE_INODECACHE=1 cmake --build "build/$preset" --parallel "$(nproc)" --target "${targets[@]}" ||
    fail "building $preset failed"
}
