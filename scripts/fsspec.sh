#!/usr/bin/env bash
# Puts the fsspec of bindings/python/requirements.txt in a directory at the path given: its tests of
# any file system run in `make test`. Where PyPI cannot be reached, those are skipped and say so.
set -euo pipefail
destination=$1
wanted=$(grep '^fsspec==' "$(dirname "${BASH_SOURCE[0]}")/../bindings/python/requirements.txt")
mkdir -p "$(dirname "$destination")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for python in python3 /usr/bin/python3; do
  "$python" -m pip --version >/dev/null 2>&1 && break
done
if timeout 120 "$python" -m pip download --quiet --no-deps --disable-pip-version-check --only-binary :all: \
  --dest "$scratch" "$wanted" 2>"$scratch/said" &&
  "$python" -m zipfile -e "$scratch"/fsspec-*.whl "$scratch/fsspec"; then
  # Only whole.
  rm -rf "$destination"
  mv "$scratch/fsspec" "$destination"
else
  echo "fsspec: $wanted cannot be downloaded here; its tests are skipped" >&2
fi
