#!/usr/bin/env bash
# Boots a Debian of its own with systemd as process 1, in a container without a network, and does
# there what docs/operating.md has an administrator do: scripts/package-test.sh PACKAGE.
# The Debian is fetched once (debootstrap) and kept in target/package-test; with it a run takes
# about two minutes. What is done inside is in scripts/package-test.
set -Eeuo pipefail
skip() { echo "skipped: needs $*"; exit 0; }

if [[ ${PACKAGE_TEST_NAMESPACE-} != own ]]; then
  ((EUID == 0)) || skip "root"
  for pair in debootstrap:debootstrap systemd-nspawn:systemd-container nsenter:util-linux; do
    command -v "${pair%%:*}" >/dev/null || skip "${pair%%:*} (apt-get install ${pair##*:})"
  done
  [[ -c /dev/fuse && -c /dev/autofs ]] || skip "/dev/fuse and /dev/autofs"
  unshare --mount true 2>/dev/null || skip "the right to mount (CAP_SYS_ADMIN)"
  # Whatever happens, nothing stays mounted.
  PACKAGE_TEST_NAMESPACE=own exec unshare --mount "$0" "$@"
fi

package=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/package-test
# Another name for another list of packages.
base=$work/base-with-cc
if [[ ! -e $base.complete ]]; then
  echo "Fetching a Debian into $base"
  rm -rf "$base"
  mkdir -p "$work"
  debootstrap --variant=minbase \
    --include=systemd,systemd-sysv,dbus,fuse3,procps,iproute2,gcc,libc6-dev,pkgconf \
    bookworm "$base" http://deb.debian.org/debian >"$work/debootstrap.log" 2>&1 ||
    skip "a mirror of Debian (what debootstrap said: $work/debootstrap.log)"
  touch "$base.complete"
fi

# A run's own machine: what it changes of the Debian, its disks, and the packages.
run=$(mktemp -d "$work/run.XXXXXX")
machine=weir-package-test-$$
mkdir "$run"/{changed,scratch,root,disks,packages}
mount -t overlay -o "lowerdir=$base,upperdir=$run/changed,workdir=$run/scratch" none "$run/root"
container=
clean_up() {
  if [[ -n $container ]]; then
    # Its first process, with which all end; then the container does.
    pkill -KILL --parent "$container" || true
    wait "$container" || true
  fi
  umount "$run/root"
  rm -rf "$run"
  # What the container's systemd has made of groups.
  for groups in "${hierarchies[@]}"; do
    [[ ! -d $groups/$machine ]] || find "$groups/$machine" -depth -type d -exec rmdir {} +
  done
}
# systemd finds its groups below that of who starts it: here nobody else is in it.
mapfile -t hierarchies < <(findmnt --list --noheadings --output TARGET --types cgroup2 &&
  findmnt --list --noheadings --output TARGET --types cgroup --options name=systemd || true)
trap clean_up EXIT
trap 'echo "package-test FAILED: line $LINENO: $BASH_COMMAND" >&2' ERR

cp "$package" "$run/packages/weir.deb"
# Those of the library were made with it.
for name in libweir0 libweir-dev; do
  cp "$(dirname "$package")/$name${package##*/weir}" "$run/packages/$name.deb"
done
# The next version: the same, with a greater number.
dpkg-deb --raw-extract "$package" "$run/next"
sed -i 's/^Version: .*/&+next/' "$run/next/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$run/next" "$run/packages/next.deb" >/dev/null
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$run/root/etc/hosts"

# Starts the machine.
boot() {
  (
    for groups in "${hierarchies[@]}"; do
      mkdir -p "$groups/$machine"
      echo "$BASHPID" >"$groups/$machine/cgroup.procs"
    done
    exec systemd-nspawn --boot --quiet --directory "$run/root" --machine "$machine" \
      --register=no --keep-unit --private-network --console=pipe \
      --bind=/dev/fuse --bind=/dev/autofs --bind="$run/disks:/disks" \
      --bind-ro="$run/packages:/packages" --bind-ro="$PWD/scripts/package-test:/steps"
  ) </dev/null >>"$run/console" 2>&1 &
  container=$!
  local tries=0
  until [[ $(inside systemctl is-system-running --wait 2>/dev/null) == running ]]; do
    if ((++tries > 300)) || ! kill -0 "$container"; then
      inside systemctl --no-pager --failed || true
      echo "it does not come up; what its console said:" >&2
      tail -n 40 "$run/console" >&2
      return 1
    fi
    sleep 0.2
  done
}

# As somebody who has logged in: in a scope that ends before what the machine mounts.
inside() {
  nsenter --target "$(pgrep --parent "$container")" --all \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    systemd-run --quiet --scope --slice=user.slice --property=After=systemd-user-sessions.service \
    "$@"
}

# Switches it off, which may take no longer than something that hangs.
off() {
  local begin=$SECONDS
  # Whoever asks for it is ended as well.
  inside systemctl poweroff 2>/dev/null || true
  wait "$container" || true
  container=
  ((SECONDS - begin < 20)) || { echo "it took $((SECONDS - begin)) s to end" >&2; return 1; }
}

echo "Starting a machine with systemd"
boot
for step in scripts/package-test/*.sh; do
  name=$(basename "$step")
  echo "== $(sed -n '1s/^# //p' "$step")"
  inside bash -Eeuo pipefail "/steps/$name"
  off
  boot
done
off
echo "The package, its units and its mounts work under systemd."
