#!/usr/bin/env bash
# Builds the program of the last release from this repository's history, in a target directory of
# its own, and lets it meet today's: scripts/upgrade-test.sh. About four minutes of two cores the
# first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
# 0.1.0, the last release (CHANGELOG.md), which has no tag: protocol 1, formats 1.
commit=c6c1f850549372a95055d5e901bbcdded2eb2a8a
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/upgrade
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "this checkout has no commit $commit: fetch the whole history (git fetch --unshallow)" >&2
  exit 1
fi
sources=$target/sources-${commit:0:7}
if [ ! -e "$sources/.complete" ]; then
  rm -rf "$sources"
  mkdir -p "$sources"
  git archive "$commit" | tar -x -C "$sources"
  touch "$sources/.complete"
fi
(cd "$sources" && CARGO_TARGET_DIR=$target/build $cargo build --locked -p weir)
WEIR_OLD=$target/build/debug/weir exec $cargo test --locked -p weir --test all -- upgrade:: --include-ignored
