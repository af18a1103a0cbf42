#!/usr/bin/env bash
# Makes a Debian package of the program in target/release: scripts/deb.sh OUTPUT_DIR [FLAG...].
# What is in it says crates/cli/Cargo.toml; here is made what the program itself writes. With
# `scripts/deb.sh --files` only that, for `cargo deb -p weir` by hand. FLAGs are cargo-deb's.
set -euo pipefail
output=$1
shift
target=$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "${BASH_SOURCE[0]}")/../target}")
program=$target/release/weir
made=$target/release/deb-files
umask 022

rm -rf "$made"
mkdir -p "$made/completions"
"$program" man "$made/man"
gzip -9n "$made"/man/man*/*
"$program" completions bash >"$made/completions/weir"
"$program" completions zsh >"$made/completions/_weir"
"$program" completions fish >"$made/completions/weir.fish"
# mount(8) looks in /sbin, which is /usr/sbin. Where it is made it leads nowhere.
ln -s ../bin/weir "$made/mount.fuse.weir"
[[ $output != --files ]] || exit 0

mkdir -p "$output"
output=$(realpath "$output")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR=$target PATH=$target/tools:$PATH
exec "${CARGO:-cargo}" deb --package weir --no-build --strip --locked --quiet --output "$output/" "$@"
