#!/usr/bin/env bash
# Puts pjdfstest, tests of what POSIX says of file systems, at the path given: a link to an
# installed one, or built from crates.io (half a minute). Where neither can be had, the test that
# runs it says so and checks nothing; the others do not depend on it.
set -euo pipefail
destination=$1
version=0.2.2
tools=$(dirname "$destination")
mkdir -p "$tools"
root=$(cd "$tools" && pwd)/pjdfstest-root

if installed=$(command -v pjdfstest); then
  ln -sf "$installed" "$destination"
  exit
fi
echo "pjdfstest $version: building it"
if "${CARGO:-cargo}" install pjdfstest --version "$version" --locked --quiet --root "$root" \
  --target-dir "$root/target"; then
  rm -rf "$root/target"
  ln -sf "$root/bin/pjdfstest" "$destination"
else
  echo "pjdfstest $version: cannot be built here; its test will be skipped" >&2
fi
