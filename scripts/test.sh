#!/usr/bin/env bash
# All tests, in two lanes: those of real processes wait more than they work, so that the ones on
# simulated time have the processors meanwhile, with the lower priority. Prints the first lane as
# it goes, then the second one, and at the end what came of both.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
simulated=(weir-sim weir-simhost weir-scale weir-policy weir-store weir-metastore)
"$cargo" test --workspace --locked --no-run

logs=$(mktemp -d)
trap 'kill "${lane:-}" 2>/dev/null || true; rm -rf "$logs"' EXIT
nice -n 10 "$cargo" test --locked --no-fail-fast "${simulated[@]/#/-p=}" >"$logs/simulated" 2>&1 &
lane=$!
failed=0
"$cargo" test --workspace "${simulated[@]/#/--exclude=}" --locked --no-fail-fast 2>&1 |
  tee "$logs/real" || failed=1
wait "$lane" || failed=1
lane=
cat "$logs/simulated"

count() { grep -hoE "^test result: .* $1;" "$logs"/* | grep -oE "[0-9]+ $1" | awk '{ n += $1 } END { print n + 0 }'; }
echo
grep -hE '^test .* FAILED$|^error: .*test failed' "$logs"/* || true
echo "all tests: $(count passed) passed; $(count failed) failed; $(count ignored) ignored; in ${SECONDS} s with what was built"
exit "$failed"
