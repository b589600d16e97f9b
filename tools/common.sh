# Shared by ./run and ./test: install what is missing, build. Sourced, not run.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "installing packages needs root: run as root or install sudo"
  fi
}

# install_packages LIST...: the Debian packages named in the files that are not installed yet.
install_packages() {
  local wanted missing=() package
  wanted=$(sed 's/#.*//' "$@")
  for package in $wanted; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || fail "missing ${missing[*]}; only Debian's apt-get is supported"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  as_root apt-get update -qq || fail "apt-get update failed"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || fail "apt-get install failed"
}

# build PRESET TARGET... [-- CMAKE-OPTION...]
build() {
  local preset=$1 targets=() log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  mkdir -p build
  log=build/configure-$preset.log
  cmake --preset "$preset" "$@" >"$log" 2>&1 || { cat "$log"; fail "configuring $preset failed"; }
  # ccache goes by the compiler's list of headers, without a preprocessor's run, and hashes each of them once.
  CCACHE_DEPEND=1 CCACHE_INODECACHE=1 cmake --build "build/$preset" --parallel "$(nproc)" --target "${targets[@]}" ||
    fail "building $preset failed"
}
