#!/usr/bin/env bash
# Makes the Debian packages of target/release: scripts/deb.sh OUTPUT_DIR [FLAG...]. weir is the program,
# libweir0 and libweir-dev the library, if it was built (`cargo build --release -p weir-capi`). What is in
# them say crates/cli/Cargo.toml and bindings/c/Cargo.toml; here is made what the program itself writes. With
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
deb() { "${CARGO:-cargo}" deb "$@" --no-build --strip --locked --quiet --output "$output/"; }
if [[ -e $target/release/libweir.so ]]; then
    rm -rf "$target/release/lib-files"
    CARGO_TARGET_DIR=$target scripts/libweir.sh "" "$target/release/lib-files"
    # Packages have it below /usr, where the compiler looks anyway.
    sed -i "s|$target/release/lib-files|/usr|" "$target/release/lib-files/lib/pkgconfig/weir.pc"
    gzip -9nf "$target/release/lib-files/share/man/man3/libweir.3"
    deb --package weir-capi "$@"
    deb --package weir-capi --variant dev "$@"
fi
deb --package weir "$@"
