"""`make bench-python`: `cat_ranges` beside the library itself (crates/connect/examples/ranges.rs).

Both read the same ranges of the same file of a cluster on this machine with the same number of
threads, one after the other in turns; a row has the median of each and their ratio.
"""

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time

import fsspec

MIB = 1 << 20


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mib", type=int, default=512, help="size of the file")
    arguments.add_argument("--turns", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=8)
    asked = arguments.parse_args()
    weir, library = os.environ["WEIR"], os.environ["RANGES"]
    with tempfile.TemporaryDirectory(prefix="weir-b", dir="/tmp") as home:
        os.environ |= {"XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}
        address = f"127.78.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
        up = [weir, "up", "--name", "bench", "--targets", "4", "--listen", address]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            rows(asked, library)
        finally:
            down = [weir, "down", "--name", "bench", "--purge", "--yes"]
            subprocess.run(down, check=True, stdout=subprocess.DEVNULL)


def rows(asked, library):
    fs = fsspec.filesystem("weir", cluster="bench")
    size = asked.mib * MIB
    fs.pipe_file("/file", os.urandom(MIB) * asked.mib)
    print(f"{'ranges':>16} {'library MB/s':>14} {'cat_ranges MB/s':>16} {'ratio':>7}")
    for length, count in ((4 * MIB, 64), (MIB, 256), (64 << 10, 2_000), (4 << 10, 8_000)):
        chance = random.Random(1)
        starts = [chance.randrange(0, size - length) for _ in range(count)]
        paths, ends = ["/file"] * count, [start + length for start in starts]
        told = "".join(f"{start} {length}\n" for start in starts)
        command = [library, "bench", "/file", str(asked.threads), str(asked.turns)]
        ours = []
        fs.cat_ranges(paths, starts, ends, on_error="raise")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            other.stdin.write(told + "\n")
            other.stdin.flush()
            theirs = []
            other.stdout.readline()
            for _ in range(asked.turns):
                other.stdin.write("go\n")
                other.stdin.flush()
                theirs.append(float(other.stdout.readline()))
                begun = time.perf_counter()
                got = fs.cat_ranges(paths, starts, ends, on_error="raise")
                ours.append(time.perf_counter() - begun)
                del got
            other.stdin.close()
        rate = [length * count / statistics.median(times) / 1e6 for times in (theirs, ours)]
        name = f"{count} x {length >> 10} KiB"
        print(f"{name:>16} {rate[0]:14.0f} {rate[1]:16.0f} {rate[1] / rate[0]:7.2f}")


main()
