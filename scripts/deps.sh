#!/usr/bin/env bash
# Installs the Debian packages that building, the quick start and the tests
# need and that are missing. Says what it installs; does nothing otherwise.
set -euo pipefail

# command:package
needed=(
  cc:build-essential
  diff:diffutils
  etcd:etcd-server
  fincore:util-linux-extra
  fio:fio
  fusermount3:fuse3
  ganesha.nfsd:nfs-ganesha
  git:git
  ip:iproute2
  iptables:iptables
  javac:default-jdk-headless
  mkfs.btrfs:btrfs-progs
  mkfs.ext4:e2fsprogs
  mpirun:openmpi-bin
  mvn:maven
  python3:python3
  rpcbind:rpcbind
  rsvg-convert:librsvg2-bin
  rsync:rsync
  setfacl:acl
  setfattr:attr
  sqlite3:sqlite3
  stress-ng:stress-ng
  tar:tar
  xargs:findutils
)
missing=()
for pair in "${needed[@]}"; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
# Debian keeps the server beside the path, by version.
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
# Compilers of both MPI need their headers.
compgen -G '/usr/lib/*/openmpi/include/mpi.h' >/dev/null || missing+=(libopenmpi-dev)
compgen -G '/usr/include/*/mpich/mpi.h' >/dev/null || missing+=(libmpich-dev mpich)
# The library that parities are compared with.
compgen -G '/usr/lib/*/libisal.so.2' >/dev/null || missing+=(libisal2)
# What the NFS server reads files by, and the client's library.
compgen -G '/usr/lib/*/ganesha/libfsalvfs.so' >/dev/null || missing+=(nfs-ganesha-vfs)
# Of another Debian that library has another version: what needs it is skipped there.
compgen -G '/usr/lib/*/libnfs.so.13' >/dev/null ||
  { apt-cache show libnfs13 >/dev/null 2>&1 && missing+=(libnfs13); } || true
# Python's own tests are a package of its version.
compgen -G '/usr/lib/python3.*/test/test_os.py' >/dev/null ||
  missing+=("libpython3.$(/usr/bin/python3 -c 'import sys; print(sys.version_info[1])' 2>/dev/null || echo 11)-testsuite")
# Debian's Python has its packages for itself.
for module in h5py mpi4py pytest; do
  [[ -d /usr/lib/python3/dist-packages/$module ]] || missing+=("python3-$module")
done
# It downloads libraries that Python's tests use.
python3 -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m pip --version >/dev/null 2>&1 ||
  missing+=(python3-pip)
((${#missing[@]})) || exit 0

# Without these, tests of Java and of Python are skipped, and nothing else.
required=()
for package in "${missing[@]}"; do
  case $package in
    default-jdk-headless | maven | python3-pip) ;;
    *) required+=("$package") ;;
  esac
done

# Ends with a message: a failure, unless only tests are skipped.
not_installed() {
  echo "missing: ${missing[*]}$1" >&2
  ((${#required[@]} == 0)) || exit 1
  echo "what needs them is skipped; everything else works" >&2
  exit 0
}

root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    not_installed "; install them as root: apt-get install ${missing[*]}"
  root=(sudo)
fi
command -v apt-get >/dev/null ||
  not_installed " (names of Debian packages); install them and try again"
echo "installing with apt-get: ${missing[*]}"
"${root[@]}" apt-get update -q &&
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}" </dev/null ||
  not_installed "; apt-get could not install them"
