#!/usr/bin/env bash
# Installs libweir, of the release build (`cargo build --release -p weir-capi`), with its header, its
# manual page and its pkg-config file: scripts/libweir.sh DESTDIR [PREFIX [LIBDIR]]. DESTDIR is put in
# front of all paths; PREFIX is /usr/local, LIBDIR is PREFIX/lib.
set -euo pipefail
dest=$1
prefix=${2:-/usr/local}
libdir=${3:-$prefix/lib}
top=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
built=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/${PROFILE:-release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$top/Cargo.toml" | head -n 1)
umask 022

mkdir -p "$dest$libdir/pkgconfig" "$dest$prefix/include" "$dest$prefix/share/man/man3"
install -m 644 "$built/libweir.so" "$dest$libdir/libweir.so.$version"
ln -sf "libweir.so.$version" "$dest$libdir/libweir.so.0"
ln -sf libweir.so.0 "$dest$libdir/libweir.so"
install -m 644 "$built/libweir.a" "$dest$libdir/"
install -m 644 "$top/bindings/c/include/weir.h" "$dest$prefix/include/"
install -m 644 "$top/bindings/c/libweir.3" "$dest$prefix/share/man/man3/"
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" "$top/bindings/c/weir.pc.in" \
    >"$dest$libdir/pkgconfig/weir.pc"
