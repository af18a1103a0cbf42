#!/usr/bin/env bash
# Makes a Debian package of a program that was built: scripts/deb.sh WEIR OUTPUT_DIR.
# With dpkg-deb itself: what is in the package is what this says, and nothing has to be installed.
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
umask 022
root=$scratch/debian/weir
version=$("$program" --version | awk '{print $2}')
architecture=$(dpkg --print-architecture)

install -D -s "$program" "$root/usr/bin/weir"
# mount(8) looks in /sbin, which is /usr/sbin.
install -d "$root/usr/sbin" "$root/etc/weir"
ln -s ../bin/weir "$root/usr/sbin/mount.fuse.weir"

share=$root/usr/share
"$program" man "$share/man"
gzip -9n "$share"/man/man*/*
complete() {
  mkdir -p "$(dirname "$share/$2")"
  "$program" completions "$1" >"$share/$2"
}
complete bash bash-completion/completions/weir
complete zsh zsh/vendor-completions/_weir
complete fish fish/vendor_completions.d/weir.fish

install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*.service
install -D -m 644 -t "$share/weir/grafana" packaging/grafana/weir.json
documents=$share/doc/weir
install -D -m 644 -t "$documents/examples" packaging/systemd/*.mount
install -m 644 -t "$documents" docs/*.md
gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
{
  echo "Weir is under the Apache License 2.0; on Debian its text is in"
  echo "/usr/share/common-licenses/Apache-2.0."
} >"$documents/copyright"

install -D -t "$root/DEBIAN" packaging/deb/*
# Which versions of the C library it needs: dpkg-shlibdeps wants to see a source package.
printf 'Source: weir\n\nPackage: weir\nArchitecture: any\n' >"$scratch/debian/control"
depends=$(cd "$scratch" && dpkg-shlibdeps -O "$root/usr/bin/weir" | sed -n 's/^shlibs:Depends=//p')

(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
cat >"$root/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $architecture
Maintainer: The Weir authors <weir@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f1)
Depends: $depends
Recommends: fuse3
Description: parallel file system that keeps its pace
 Weir joins the disks of many machines into one file system that plain programs
 use through a mount. One program has its servers, its mount and its tools.
CONTROL
dpkg-deb --root-owner-group ${DEB_COMPRESSION:+-Z$DEB_COMPRESSION} --build \
  "$root" "$output/weir_${version}_$architecture.deb"
