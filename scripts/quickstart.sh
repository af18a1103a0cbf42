#!/usr/bin/env bash
# Shows Weir at work on this machine: installs what is missing, builds, starts
# a cluster of four targets, mounts it, copies a real tree and a file of
# records onto it, proves every byte back, and prints what each step cost
# beside the same step on the local disk. Any difference is an error. In the end four processes
# of a job read from four disks, one of which becomes slow, and `weir top` says which.
#
#   QUICKSTART_TREE     the tree to copy             (/usr/share)
#   QUICKSTART_RECORDS  size of the file of records  (1GiB)
#   QUICKSTART_MOUNT    where to mount               (/tmp/weir-quickstart)
#   QUICKSTART_SCRATCH  where the local copies go    (/var/tmp); removed at the end
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tree=$(realpath "${QUICKSTART_TREE:-/usr/share}")
records_size=${QUICKSTART_RECORDS:-1GiB}
mountpoint=${QUICKSTART_MOUNT:-/tmp/weir-quickstart}
name=quickstart
pattern=license

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { printf '\nquickstart FAILED: %s\n' "$*" >&2; exit 1; }
trap 'die "line $LINENO: $BASH_COMMAND"' ERR

[[ -d $tree ]] || die "$tree is not a directory: set QUICKSTART_TREE"
scripts/deps.sh
say "Building"
make --no-print-directory build
bin=${CARGO_TARGET_DIR:-target}/release
weir=$bin/weir
records=$bin/weir-records

scratch=$(mktemp -d "${QUICKSTART_SCRATCH:-/var/tmp}/weir-quickstart.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

say "Starting a cluster of four targets"
"$weir" up --name $name --targets 4 --mount "$mountpoint"
state=$("$weir" up --name $name --mount "$mountpoint" --json | sed -n 's/^  "dir": "\(.*\)",$/\1/p')
[[ -d $state/run ]] || die "no state directory: $state"
# What an earlier run left.
rm -rf "$mountpoint"/{tree,records}

# CPU seconds so far of all processes of the cluster.
ticks=$(getconf CLK_TCK)
cluster_cpu() {
  local pids=() pid file
  for file in "$state"/run/*.pid; do
    read -r pid _ <"$file" && pids+=("/proc/$pid/stat")
  done
  cat "${pids[@]}" 2>/dev/null | sed 's/.*) //' |
    awk -v hz="$ticks" '{ sum += $12 + $13 } END { printf "%.2f", sum / hz }'
}

# measure COMMAND...: runs it; sets seconds, and cpu (of the command and the cluster).
measure() {
  local before after user system
  before=$(cluster_cpu)
  TIMEFORMAT='%R %U %S'
  { time "$@" >"$scratch/out" 2>"$scratch/err"; } 2>"$scratch/time" ||
    { cat "$scratch/out" "$scratch/err" | head -n 20 >&2; die "$*"; }
  [[ ! -s $scratch/err ]] || { head -n 20 "$scratch/err" >&2; die "$*: complained"; }
  after=$(cluster_cpu)
  read -r seconds user system < <(tail -n 1 "$scratch/time")
  cpu=$(awk "BEGIN { printf \"%.2f\", $user + $system + $after - $before }")
}

table=()
# row TITLE BYTES FUNCTION: the same step on Weir and on the local disk.
row() {
  local title=$1 bytes=$2 step=$3 weir_seconds weir_cpu weir_out
  measure "$step" "$mountpoint"
  weir_seconds=$seconds weir_cpu=$cpu weir_out=$(<"$scratch/out")
  measure "$step" "$local_copy"
  # Verifying names the file; everything else has to agree to the letter.
  [[ ${weir_out//$mountpoint/} == "$(sed "s|$local_copy||g" "$scratch/out")" ]] ||
    die "$title: Weir and the local disk disagree"
  table+=("$(awk -v t="$title" -v b="$bytes" -v ws="$weir_seconds" -v wc="$weir_cpu" \
    -v ls="$seconds" -v lc="$cpu" 'BEGIN {
      ws += 0.0005; ls += 0.0005
      printf "%-34s %8.2f %8.0f %8.2f   %8.2f %8.0f %8.2f",
        t, ws, b / 1e6 / ws, wc, ls, b / 1e6 / ls, lc }')")
  echo "  $title: done"
}

# The client's caches are emptied, so that what is read comes from the servers.
remount() {
  "$weir" umount "$mountpoint"
  "$weir" mount --dir "$state" "$mountpoint"
}

local_copy=$scratch/local
mkdir "$local_copy"
say "Making $records_size of 838-byte records"
"$records" generate "$scratch/records" --size "$records_size"

tree_bytes=$(find "$tree" -type f -printf '%s\n' | awk '{ n += $1 } END { printf "%d", n }')
tree_files=$(find "$tree" | wc -l)
record_bytes=$(stat -c %s "$scratch/records")
say "Copying $tree ($tree_files names, $((tree_bytes / 1000000)) MB) and the records, and proving them back"
# Read once before, so that both copies start from a warm source.
find "$tree" -type f -print0 | xargs -0 cat >/dev/null

copy_tree() { cp -a "$tree" "$1/tree"; }
copy_records() { cp -a "$scratch/records" "$1/records"; }
diff_tree() { diff -r --no-dereference "$tree" "$1/tree"; }
verify_records() { "$records" verify "$1/records"; }
sum_records() { sha256sum <"$1/records"; }
grep_tree() {
  # grep says 1 where a batch has no match, and xargs then says 123.
  find "$1/tree" -type f -print0 |
    { xargs -0 -P 4 -n 100 grep -l -F -e "$pattern" || [[ $? -eq 123 ]]; } | wc -l
}

row "cp -a tree" "$tree_bytes" copy_tree
row "cp -a records" "$record_bytes" copy_records
remount
row "diff -r tree" "$((2 * tree_bytes))" diff_tree
row "verify records" "$record_bytes" verify_records
remount
row "sha256sum records" "$record_bytes" sum_records
[[ $(sha256sum <"$scratch/records") == "$(sum_records "$mountpoint")" ]] || die "checksums differ"
row "grep -r, 4 processes" "$tree_bytes" grep_tree

say "What each step took (CPU: all processes of the cluster, and the tool)"
printf '%-34s %26s   %26s\n' '' '---------- Weir ----------' '------- local disk -------'
printf '%-34s %8s %8s %8s   %8s %8s %8s\n' step seconds MB/s 'CPU s' seconds MB/s 'CPU s'
printf '%s\n' "${table[@]}"
echo "(Copies end in the page cache on both sides; client caches were emptied before reading,"
echo "the local disk's were not.)"

say "Where the bytes lie"
"$weir" layout "$mountpoint/records"
for target in "$state"/targets/*; do
  printf 'target %s: %s in %s\n' "${target##*/}" "$(du -sh "$target" | cut -f 1)" "$target"
done

say "A disk becomes slow (a cluster of its own, on disks of a set speed)"
"$bin/weir-figures" slow-disk --scratch "$scratch"

say "Everything was proved back. It is mounted on $mountpoint; try:"
cat <<NEXT
  export PATH=$(realpath "$bin"):\$PATH WEIR_CLUSTER=$name
  weir status --counters
  weir df -h
  weir top
  weir layout $mountpoint/records
  weir mkfile --layout chunked --chunk 8M $mountpoint/chunked && weir layout $mountpoint/chunked
  weir cp weir:/records - | head -c 100
  weir down             # stops it; weir up starts it again
  weir down --purge     # deletes it, and leaves nothing behind
NEXT
