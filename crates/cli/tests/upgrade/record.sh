#!/usr/bin/env bash
# Records what `crates/cli/tests/upgrade.rs` needs of an old program, beside itself:
# record.sh OLD_WEIR TODAYS_WEIR, where OLD_WEIR was built by scripts/upgrade-test.sh.
#
#   format-1.tar.gz  the state directory of a cluster that the old program has made and used
#   hello-1.bin      what its client says first to a server
#   refusal-1.bin    what its server answers to today's client
set -euo pipefail
old=$(realpath "$1") today=$(realpath "$2")
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
# The test puts its own place where this is in configuration files.
place=/tmp/weir-format-1
test ! -e "$place"
mkdir -m 700 "$place"
export XDG_STATE_HOME=$place HOME=$place
stop() { "$old" down --name one --purge --yes >/dev/null 2>&1 || true; rm -rf "$place"; }
trap stop EXIT

"$old" up --name one --targets 2 >/dev/null
seq 40000 >"$place/numbers"
echo "kept" >"$place/word"
"$old" mkdir --name one weir:/d
"$old" cp --name one "$place/numbers" weir:/numbers
"$old" cp --name one "$place/word" weir:/d/word

# Passes bytes on between a client and a server (or nobody), and keeps what came first.
relay() { # FILE SIDE [SERVER_PORT]
  python3 - "$@" <<'PYTHON'
import socket, sys, threading
path, side = sys.argv[1:3]
server = int(sys.argv[3]) if len(sys.argv) > 3 else None
listener = socket.create_server(("127.0.0.1", 20999))
client, _ = listener.accept()
client.settimeout(5)
hello = client.recv(65536)
if side == "client":
    kept = hello
else:
    upstream = socket.create_connection(("127.0.0.1", server), 5)
    upstream.sendall(hello)
    kept = b""
    while piece := upstream.recv(65536):
        kept += piece
    client.sendall(kept)
open(path, "wb").write(kept)
PYTHON
}
credential() { sed "s|^metadata = .*|metadata = [\"127.0.0.1:20999\"]|" "$place/weir/one/client.toml"; }
(umask 077 && credential >"$place/elsewhere.toml")
port=$(sed -n 's|^metadata = "127.0.0.1:\(.*\)"|\1|p' "$place/weir/one/cluster.toml")

relay "$here/hello-1.bin" client &
relay=$!
sleep 1
timeout 10 "$old" ls --credential "$place/elsewhere.toml" weir:/ || true
wait "$relay"
relay "$here/refusal-1.bin" server "$port" &
relay=$!
sleep 1
timeout 10 "$today" ls --credential "$place/elsewhere.toml" weir:/ || true
wait "$relay"

"$old" down --name one >/dev/null
rm -f "$place"/weir/one/log/* "$place"/weir/one/run/*
tar --sort=name --mtime=2026-11-21 --owner=0 --group=0 -C "$place/weir" -cf - one | gzip -9n >"$here/format-1.tar.gz"
ls -l "$here"
