#!/usr/bin/env bash
# What takes hours: 100,000 crash images of the object store and of the metadata
# engine, 1,000 cycles of kill -9 of real daemons, 500 cycles of all that can fail of
# machines, links and disks under files with copies (as root), 500 rounds of losing the
# metadata server that leads or a member of etcd, a directory of a million files (as root), then simulated seeds without end (interrupt it when you have seen
# enough). `SOAK` picks parts of it:
#   make soak SOAK="images cycles kills metas names sim"
# Every part prints the seed that brings a failure back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
parts=${SOAK:-images cycles kills metas names sim}
images=${WEIR_CRASH_IMAGES:-100000}
cycles=${WEIR_CYCLES:-1000}
kills=${WEIR_KILL_CYCLES:-500}

for part in $parts; do
  case $part in
    images)
      export WEIR_CRASH_IMAGES=$images
      "$cargo" test --release --locked -p weir-store --test all -- \
        crash_images:: threads:: --nocapture
      "$cargo" test --release --locked -p weir-metastore --test crash after_any_crash -- --nocapture
      ;;
    cycles)
      WEIR_CYCLES=$cycles "$cargo" test --locked -p weir --test all -- cycles:: --nocapture
      ;;
    kills)
      WEIR_KILL_CYCLES=$kills WEIR_KILL_LONG=1 "$cargo" test --locked -p weir --test all -- \
        kills:: --nocapture
      ;;
    metas)
      WEIR_META_ROUNDS=${WEIR_META_ROUNDS:-500} "$cargo" test --locked -p weir --test all -- \
        meta_rounds:: --nocapture
      ;;
    names)
      "$cargo" test --release --locked -p weir --test all -- \
        large_directory:: --ignored --nocapture
      ;;
    sim)
      # All that are known to be clean, and more moments of each failure than `make test` has.
      WEIR_SIM_ALL=1 WEIR_SIM_SEEDS=2000 WEIR_SIM_MOMENTS=10 "$cargo" test --release --locked -p weir-sim \
        --test all -- seeds:: crash_points:: detour:: server_cut:: \
        failover:: lost_notes:: slow_disk:: pace:: --nocapture
      "$cargo" build --release --locked -p weir
      # Each round begins at a random seed, which it prints. From 1,000,000,000 on clusters
      # keep several copies, from 2,000,000,000 on they change besides, from 3,000,000,000 on
      # disks hang.
      weir=${CARGO_TARGET_DIR:-target}/release/weir
      while "$weir" sim --seeds 10000 &&
        "$weir" sim --seed $((1000000000 + RANDOM * 30000 + RANDOM)) --seeds 2000 --duration 30s &&
        "$weir" sim --seed $((2000000000 + RANDOM * 30000 + RANDOM)) --seeds 2000 --duration 30s &&
        "$weir" sim --seed $((3000000000 + RANDOM * 30000 + RANDOM)) --seeds 2000 --duration 40s
      do :; done
      exit 1
      ;;
    *)
      echo "soak: unknown part \`$part'; there are: images cycles kills metas names sim" >&2
      exit 2
      ;;
  esac
done
