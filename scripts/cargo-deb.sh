#!/usr/bin/env bash
# Puts cargo-deb at the path given: a link to an installed one, or one built from crates.io, which
# takes a minute or two and no more than building Weir does.
set -euo pipefail
destination=$1
version=3.8.0
tools=$(dirname "$destination")
mkdir -p "$tools"
root=$(cd "$tools" && pwd)/cargo-deb-root

if installed=$(command -v cargo-deb) && [[ $("$installed" --version) == *" $version" ]]; then
  ln -sf "$installed" "$destination"
  exit
fi
echo "cargo-deb $version: building it, which takes a minute or two"
"${CARGO:-cargo}" install cargo-deb --version "$version" --locked --quiet --root "$root" \
  --target-dir "$root/target"
rm -rf "$root/target"
ln -sf "$root/bin/cargo-deb" "$destination"
