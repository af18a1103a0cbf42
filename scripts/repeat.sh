#!/usr/bin/env bash
# One test N times: scripts/repeat.sh NAME N, as in `repeat.sh copies::a_test 50`. Goes on where it
# was stopped, and says how often it has failed. What each failure has said, and the count, are in
# target/repeat/NAME; remove that to begin anew. PACKAGE names its crate if it is not `weir`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($# == 2)) && [[ $2 =~ ^[0-9]+$ ]] || { echo "usage: scripts/repeat.sh NAME N" >&2; exit 2; }
name=$1 rounds=$2
package=${PACKAGE:-weir}
limit=${WEIR_TEST_LIMIT:-600}
target=${CARGO_TARGET_DIR:-target}
kept=$target/repeat/$name
mkdir -p "$kept"

# The program of this crate that has the test.
found=
while IFS=$'\t' read -r directory program; do
  # Not `grep -q`: the program would fail to write the rest.
  if (cd "$directory" && "$program" --list --format terse) | grep -Fx "$name: test" >/dev/null; then
    found="$directory"$'\t'"$program"
  fi
done < <("${CARGO:-cargo}" test --locked -p "$package" --tests --no-run \
  --message-format=json-render-diagnostics | python3 -c '
import json, os, sys
for line in sys.stdin:
    of = json.loads(line)
    if of.get("executable") and of["profile"]["test"]:
        print(os.path.dirname(of["manifest_path"]), of["executable"], sep="\t")
')
[[ -n $found ]] || { echo "error: no test of $package is called $name" >&2; exit 2; }
directory=${found%$'\t'*} program=${found#*$'\t'}

kept=$(realpath "$kept")
touch "$kept/rounds"
cd "$directory"
while (($(wc -l <"$kept/rounds") < rounds)); do
  round=$(($(wc -l <"$kept/rounds") + 1))
  begin=$SECONDS
  if CARGO_MANIFEST_DIR=$directory timeout -k 10 "$limit" "$program" --exact "$name" --nocapture \
    </dev/null >"$kept/now.log" 2>&1; then
    came=ok
  else
    came=FAILED
    mv "$kept/now.log" "$kept/failure-$round.log"
  fi
  echo "$came $((SECONDS - begin)) s" >>"$kept/rounds"
  echo "$name, $round of $rounds: $came after $((SECONDS - begin)) s"
done
failed=$(grep -c FAILED "$kept/rounds" || true)
echo "$name: $(($(wc -l <"$kept/rounds") - failed)) passed; $failed failed; what failures said is in $kept"
((failed == 0))
