# Functions to install missing packages and to build. Scripts source this file.
set -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { if [ -t 1 ]; then printf '\033[1m== %s\033[0m\n' "$*"; else printf '== %s\n' "$*"; fi; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# as_root COMMAND... runs the command as root, or fails if this user cannot become root.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else return 1
  fi
}

# apt_get ARGUMENT... runs apt-get as root. While another process holds one of apt's or dpkg's
# locks, it tries again for SLUICE_APT_WAIT_S seconds at most. apt's own option DPkg::Lock::Timeout
# does not cover the locks of the package lists and of the downloaded archives. For these, apt 2.6
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
  local wanted installed missing=() package command began=$SECONDS
  wanted=$(sed 's/#.*//' "$@")
  # shellcheck disable=SC2086  # The list is split into words.
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^ii *//p') || true
  for package in $wanted; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  cannot_install() {
    fail "${#missing[@]} Debian packages are missing, and $1. Run this command as root:
  $command"
  }
  command -v apt-get >/dev/null || cannot_install "this system has no apt-get"
  as_root true || cannot_install "installing packages needs root or sudo"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  apt_get update -qq || cannot_install "apt-get update failed (is there a network?)"
  apt_get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    cannot_install "apt-get install failed (is there a network?)"
  say "installed the packages in $((SECONDS - began)) s"
}

# architecture_of PROGRAM prints Debian's name of a program's architecture.
architecture_of() {
  case $(od -An -t u2 -j 18 -N 2 "$1" | tr -d ' ') in
    62) echo amd64 ;;
    183) echo arm64 ;;
    *) fail "$1 is not a program for x86-64 or ARM64" ;;
  esac
}

# download_packages ARCHITECTURE FOLDER PACKAGE... fills the folder with the packages that an empty
# system of that architecture needs for these packages. Installs nothing and needs no root, unless
# apt's own lists are out of date.
download_packages() {
  local architecture=$1 folder=$PWD/$2 options
  shift 2
  mkdir -p "$folder"/{partial,lists/partial}
  options=(-qq -y --no-install-recommends --download-only -o Dir::State::status=/dev/null
    -o Dir::Cache::archives="$folder" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)
  if [ "$architecture" != "$(dpkg --print-architecture)" ]; then
    options+=(-o APT::Architecture="$architecture" -o APT::Architectures::="$architecture"
      -o Dir::State::lists="$folder/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  fi
  apt-get "${options[@]}" install "$@" >"$folder/apt.log" 2>&1 ||
    { apt-get "${options[@]}" update && apt-get "${options[@]}" install "$@"; } >"$folder/apt.log" 2>&1 ||
    { cat "$folder/apt.log" >&2; fail "downloading the packages failed"; }
}

# show_progress [BEGAN] prints the output of a build that began at second BEGAN. It replaces the
# lines "@DONE/ALL@ ..." by a count of steps and the estimated remaining time. On a terminal this is
# one line that changes; otherwise it prints a line every 30 s.
show_progress() {
  local began=${1:-$SECONDS} printed=${1:-$SECONDS} line left status
  while IFS= read -r line; do
    if [[ $line =~ ^@([1-9][0-9]*)/([0-9]+)@ ]]; then
      left=$(((SECONDS - began) * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1]))
      status=$(printf 'step %d of %d, about %d:%02d left' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" \
        $((left / 60)) $((left % 60)))
      if [ -t 1 ]; then
        printf '\r\033[K%s' "$status"
      elif [ $((SECONDS - printed)) -ge 30 ]; then
        printf '%s\n' "$status"
        printed=$SECONDS
      fi
    elif [[ $line != @0/* && $line != "ninja: no work to do." ]]; then
      [ -t 1 ] && printf '\r\033[K'
      printf '%s\n' "$line"
    fi
  done
  [ -t 1 ] && printf '\r\033[K'
  return 0
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
  CCACHE_DEPEND=1 CCACHE_INODECACHE=1 NINJA_STATUS='@%f/%t@ ' \
    cmake --build "build/$preset" --parallel "$(nproc)" --target "${targets[@]}" 2>&1 |
    show_progress || fail "building $preset failed"
}
