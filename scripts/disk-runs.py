#!/usr/bin/env python3
"""How long the runs are that data servers read from loop devices while a command runs.

    scripts/disk-runs.py target/release/weir-figures even-reads --quick ...

By the kernel's own record of every request (tracefs, event block_bio_queue), as root. A run goes on
while a read begins within 1 MiB of where the last one of the servers ended on that device: requests
of one run are sent by several threads, a little out of order. What servers read goes through the page
cache (RA), and what the throttle had kept back comes from the kernel's workers; perturbers read around
it, and do not count.
"""

import collections
import pathlib
import re
import subprocess
import sys

TRACE = pathlib.Path("/sys/kernel/tracing")
EVENT = TRACE / "events/block/block_bio_queue"
LINE = re.compile(
    r"block_bio_queue: (?P<dev>7,\d+) RA (?P<sector>\d+) \+ (?P<count>\d+) \[(?P<comm>.*)\]"
)
NEAR_SECTORS = 2048
SERVERS = ("weir-disk-", "weir-loop-", "kworker/")
BUFFER_KB = 65536


def reads(lines):
    """(device, first sector, sectors) of each read of a server, in order."""
    for line in lines:
        found = LINE.search(line)
        if found and found["comm"].startswith(SERVERS):
            yield found["dev"], int(found["sector"]), int(found["count"])


def runs(of):
    """Bytes of each run."""
    ends, lengths = {}, collections.defaultdict(list)
    for dev, sector, count in of:
        end = ends.get(dev)
        if end is not None and abs(sector - end) <= NEAR_SECTORS:
            lengths[dev][-1] += count * 512
        else:
            lengths[dev].append(count * 512)
        ends[dev] = sector + count
    return [length for dev in lengths.values() for length in dev]


def main(command):
    if not EVENT.exists():
        sys.exit("skipped: needs root and tracefs (mount -t tracefs nodev /sys/kernel/tracing)")
    buffer, enable = TRACE / "buffer_size_kb", EVENT / "enable"
    had = [(file, file.read_text().split()[0]) for file in (buffer, enable)]
    try:
        buffer.write_text(str(BUFFER_KB))
        (TRACE / "trace").write_text("")
        enable.write_text("1")
        subprocess.run(command, check=True)
        enable.write_text("0")
        with open(TRACE / "trace", errors="replace") as lines:
            lengths = runs(reads(lines))
        # Beside "commit overrun", which is something else.
        stats = TRACE.glob("per_cpu/cpu*/stats")
        lost = any("\noverrun: 0\n" not in of_a_cpu.read_text() for of_a_cpu in stats)
    finally:
        for file, value in had:
            file.write_text(value)
    if lost:
        sys.exit("the kernel's record was longer than its buffer: run something shorter")
    total = sum(lengths)
    if total == 0:
        sys.exit("nothing was read from a loop device by a data server")
    mean = sum(length * length for length in lengths) / total / 2**20
    short = sum(length for length in lengths if length < 4 << 20) / total
    print(f"{total / 2**20:.0f} MiB in {len(lengths)} runs: {total / len(lengths) / 2**20:.1f} MiB each, "
          f"{mean:.1f} in the mean over bytes; {short:.1%} of bytes in runs of less than 4 MiB")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
