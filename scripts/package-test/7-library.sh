# The library: a C program is compiled and linked by pkg-config, and runs
. /steps/lib
apt() { apt-get --yes --quiet --quiet "$@" 2>&1; }
# libweir-dev needs the library of its own version, and nothing else of Weir.
apt install /packages/libweir0.deb /packages/libweir-dev.deb >/dev/null
not test -e /usr/bin/weir
gzip --test /usr/share/man/man3/libweir.3.gz
mkdir /root/c
cp /usr/share/doc/libweir-dev/examples/* /root/c
# shellcheck disable=SC2046 # The flags are words.
cc -o /root/c/hello /root/c/hello.c $(pkg-config --cflags --libs weir)
ldd /root/c/hello | grep 'libweir.so.0 => /.*/libweir.so.0 ' >/dev/null

apt install /packages/weir.deb >/dev/null
weir up --name library --targets 2 --listen 127.0.0.1 --port 7800 >/dev/null
WEIR_CLUSTER=library /root/c/hello | grep -x 'hello: ok' >/dev/null
# A program needs the library alone.
apt purge libweir-dev >/dev/null
WEIR_CLUSTER=library /root/c/hello | grep -x 'hello: ok' >/dev/null
weir down --name library --purge --yes >/dev/null
apt purge weir libweir0 >/dev/null
not /root/c/hello 2>/dev/null
