#!/usr/bin/env bash
# All tests, in two lanes: those of real processes wait more than they work, so that the ones on
# simulated time have the processors meanwhile, with the lower priority. Prints the first lane as
# it goes, then the second one, and at the end what came of both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
simulated=(weir-sim weir-simhost weir-scale weir-policy weir-store weir-metastore)
logs=$(mktemp -d)
trap 'kill "${lane:-}" 2>/dev/null || true; rm -rf "$logs"' EXIT
"$cargo" test --workspace --locked --no-run

# Cargo would build these anew if it were asked for them alone (features of what they use differ):
# so they are run as they are. A line is a directory and a program.
programs() {
  "$cargo" test --workspace --locked --no-run --message-format=json 2>/dev/null |
    python3 -c '
import json, os, sys
for line in sys.stdin:
    of = json.loads(line)
    directory = os.path.dirname(of.get("manifest_path", ""))
    name = "weir-" + os.path.basename(directory)
    if of.get("executable") and of["profile"]["test"] and name in sys.argv[1:]:
        print(directory, of["executable"], sep="\t")
' "${simulated[@]}"
}
run_simulated() {
  local failed=0 directory program
  while IFS=$'\t' read -r directory program; do
    echo "     Running $program"
    (cd "$directory" && CARGO_MANIFEST_DIR=$directory nice -n 10 "$program" </dev/null) || {
      failed=1
      echo "error: test failed: $program"
    }
  done <"$logs/programs"
  return "$failed"
}
programs >"$logs/programs"
[[ -s $logs/programs ]]
run_simulated >"$logs/simulated" 2>&1 &
lane=$!
failed=0
{
  result=0
  "$cargo" test --workspace "${simulated[@]/#/--exclude=}" --tests --locked --no-fail-fast || result=1
  "$cargo" test --workspace --doc --locked --no-fail-fast || result=1
  exit "$result"
} 2>&1 | tee "$logs/real" || failed=1
wait "$lane" || failed=1
lane=
cat "$logs/simulated"

count() {
  grep -hE '^test result:' "$logs/real" "$logs/simulated" | grep -oE "[0-9]+ $1" |
    awk '{ n += $1 } END { print n + 0 }'
}
# What each program took, the slowest first. Programs of the two lanes run at the same time.
costs() {
  awk '
    /^ +Running / { name = $NF; gsub(/.*\/|\)/, "", name) }
    /^ +Doc-tests / { name = "doc tests of " $2 }
    /^test result:/ { sub(/-[0-9a-f]+$/, "", name); gsub(/s$/, "", $NF); print $NF, name }
  ' "$@" | sort -rn | awk '{ all += $1 } NR <= 20 { printf "%8.1f s  %s\n", $1, substr($0, length($1) + 2) }
    END { printf "%8.1f s  in %d programs\n", all, NR }'
}

echo
echo "Real processes:"
costs "$logs/real"
echo "Simulated time:"
costs "$logs/simulated"
echo
grep -hE '^test .* FAILED$|^error: .*test failed' "$logs/real" "$logs/simulated" || true
echo "all tests: $(count passed) passed; $(count failed) failed; $(count ignored) ignored; $SECONDS s with the build"
exit "$failed"
