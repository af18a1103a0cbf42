#!/usr/bin/env bash
# Puts what bindings/python/requirements.txt names in the directory of the file given, for Debian's
# Python, and makes that file when all of it is there: the tests of the Python package with fsspec,
# pandas, pyarrow, dask and zarr run in `make test`. Where PyPI cannot be reached, or has not all of
# it for this Python, what is missing is skipped by its tests, which say so, and is tried again next
# time.
set -euo pipefail
complete=$1
destination=$(dirname "$complete")
requirements=$(dirname "${BASH_SOURCE[0]}")/../bindings/python/requirements.txt
mkdir -p "$(dirname "$destination")"
scratch=$(mktemp -d "$destination.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

for python in python3 /usr/bin/python3; do
  "$python" -m pip --version >/dev/null 2>&1 && break
done
version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3.11)

# Installs what a pattern of the requirements names.
put() {
  grep -E "$1" "$requirements" | grep -vE '^(#|maturin|pytest|pluggy|iniconfig|Pygments)' >"$scratch/wanted"
  rm -rf "$scratch/all"
  timeout "$2" "$python" -m pip install --quiet --no-deps --disable-pip-version-check --no-compile \
    --only-binary :all: --implementation cp --python-version "$version" --target "$scratch/all" \
    --requirement "$scratch/wanted" 2>"$scratch/said"
}

# Debian has pytest; maturin only builds.
if put . 600; then
  touch "$scratch/all/$(basename "$complete")"
elif [[ -e $complete ]]; then
  echo "what $requirements names now cannot be downloaded here; the tests use what was before" >&2
  exit 0
else
  echo "pandas, pyarrow, dask and zarr cannot be downloaded here; their tests are skipped" >&2
  [[ ! -d $destination/fsspec ]] || exit 0
  if ! put '^fsspec==' 120; then
    echo "fsspec cannot be downloaded here either; its tests are skipped" >&2
    exit 0
  fi
fi
# Only whole.
rm -rf "$destination"
mv "$scratch/all" "$destination"
