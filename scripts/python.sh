#!/usr/bin/env bash
# The Python package. `wheel` builds it, for any Python from 3.11 on, into target/wheels; `test`
# builds it quickly, installs it beside pandas, pyarrow, dask, zarr and fsspec in target/python, and
# runs all its tests there; `bench` measures it beside the library. What PyPI has is fetched once:
# later runs need no network.
set -euo pipefail
what=$1
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
base=$target/python
venv=$base/venv
source=bindings/python

# Installs what a file names. The file is copied when all of it is there.
environment() {
  local wanted=$1 found=
  cmp -s "$wanted" "$venv/requirements.txt" && return
  for found in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
    "$found" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    found=
  done
  if [[ -z $found ]]; then
    echo "needs Python 3.11 or newer with venv: apt-get install python3-venv" >&2
    exit 1
  fi
  echo "installing the packages of $wanted in $venv"
  "$found" -m venv --clear "$venv"
  timeout 900 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 3 --timeout 60 \
    --requirement "$wanted"
  cp "$wanted" "$venv/requirements.txt"
}

build() {
  CARGO=$cargo CARGO_TARGET_DIR=$target PYO3_PYTHON=$venv/bin/python \
    "$venv/bin/maturin" build --quiet --locked --manifest-path $source/Cargo.toml "$@"
}

install() {
  local wheels=$base/wheels
  rm -rf "$wheels"
  build --out "$wheels" "$@"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps \
    --force-reinstall "$wheels"/weir-*.whl
}

case $what in
wheel)
  # Of the packages this needs only maturin.
  venv=$base/maturin
  mkdir -p "$base"
  grep '^maturin==' $source/requirements.txt >"$base/maturin.txt"
  environment "$base/maturin.txt"
  build --release --out "$target/wheels"
  ls -1 "$target/wheels"/weir-*.whl
  ;;
test)
  environment $source/requirements.txt
  install --profile dev
  "$cargo" build --quiet --locked --package weir
  WEIR=$target/debug/weir "$venv/bin/python" -m pytest -q -p no:cacheprovider $source/tests "$@"
  ;;
bench)
  environment $source/requirements.txt
  install --release
  "$cargo" build --release --quiet --locked --package weir
  "$cargo" build --release --quiet --locked --package weir-connect --example ranges
  WEIR=$target/release/weir RANGES=$target/release/examples/ranges "$venv/bin/python" $source/bench/ranges.py "$@"
  ;;
*)
  echo "$0 wheel|test|bench" >&2
  exit 2
  ;;
esac
