#!/usr/bin/env python3
"""All tests, those with these words in their names, or the quick ones: `test.py [WORD...|--quick]`.

Builds every program of tests, and runs each as a process of its own; one that is called `all` has
a module for each scenario, and each module is a process. Several run at once, since those of real
processes wait more than they work. Those that only compute form a second lane, one for each
processor and with a lower priority, so that the processors are never idle. Says at the end what each
cost and what came of all.

A program that crashes, or that does not end in time, is a failure like others. What each has said
is in target/test-logs.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
LOGS = TARGET / "test-logs"
# What only computes, most of it on simulated time.
COMPUTES = {"sim", "simhost", "scale", "policy", "store", "metastore", "reliability"}
# So many programs of real processes at once, each with so many tests at once: most tests of these
# wait for servers, clocks or disks.
AT_ONCE = int(os.environ.get("WEIR_TEST_PROGRAMS", 5))
THREADS = os.environ.get("RUST_TEST_THREADS", "2")
# No program may take longer. The longest take 100 s alone, and 950 s where they only get what others
# leave.
LIMIT_S = int(os.environ.get("WEIR_TEST_LIMIT", 3000))
# They begin first, because they take longest.
LONG = ["programs_python", "kills", "crash", "losses", "moving", "cycles", "seeds", "copies",
        "crash_points", "cp_resumed", "cp", "moves", "large_directory", "programs_git", "members",
        "health", "pace"]
# They measure what the machine can do, or set limits to all of it: after all others, alone.
ALONE = {"slow_disks", "small_memory", "many_descriptors"}

# What `--quick` has beside the unit tests of all crates: models and properties, and a few seeds.
QUICK = {"layout", "metaserver", "policy", "reliability", "tidy", "wire"}
QUICK_SEEDS = ["seeds::clusters_keep_their_promises_whatever_goes_wrong",
               "seeds::clusters_that_keep_several_copies_keep_their_promises_whatever_goes_wrong"]
SEEDS_OF_EACH = "25"

Job = collections.namedtuple("Job", "crate name directory command computes")
Result = collections.namedtuple("Result", "job took cpu passed failed ignored trouble failures")


def build(selection):
    """Builds the programs; yields the name of each crate, its directory and the program."""
    command = [CARGO, "test", *selection, "--locked", "--no-run",
               "--message-format=json-render-diagnostics"]
    cargo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for line in cargo.stdout:
        of = json.loads(line)
        if of.get("executable") and of["profile"]["test"]:
            directory = os.path.dirname(of["manifest_path"])
            yield os.path.basename(directory), directory, of["target"], of["executable"]
    if cargo.wait():
        sys.exit("error: not everything can be built; no test was run")


def is_wanted(words, crate, target, test):
    """Whether a test is among those that were asked for."""
    if words == ["--quick"]:
        return "test" not in target["kind"] or crate in QUICK or test in QUICK_SEEDS
    return not words or any(word in f"{crate} {target['name']} {test}" for word in words)


def jobs_of(crate, directory, target, program, words):
    """A job for each module of a program `all`, and one for any other program."""
    listed = subprocess.run([program, "--list", "--format", "terse"], cwd=directory, text=True,
                            capture_output=True, check=True).stdout
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    groups = collections.defaultdict(list)
    for test in tests:
        name = test.split("::")[0] if target["name"] == "all" else target["name"]
        if is_wanted(words, crate, target, test):
            groups[name].append(test)
    for name, tests in groups.items():
        yield Job(crate, name, directory, [program, "--exact", *tests], crate in COMPUTES)


def run(job):
    """Runs a job to its end, or to the limit."""
    low = job.computes
    command = (["nice", "-n", "10"] if low else []) + job.command
    threads = str(os.cpu_count()) if low else THREADS
    if job.name in ALONE:
        threads = "1"
    environment = os.environ | {"CARGO_MANIFEST_DIR": job.directory, "RUST_TEST_THREADS": threads}
    log = LOGS / f"{job.crate}-{job.name}.log"
    begin, trouble = time.monotonic(), ""
    with open(log, "wb") as said:
        process = subprocess.Popen(command, cwd=job.directory, env=environment, stdout=said,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=low, process_group=None if low else 0)
        if low:
            yield_to_others(process)
        RUNNING.add(process)
        late = threading.Timer(LIMIT_S, kill, [process])
        late.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        RUNNING.discard(process)
        late.cancel()
    took = time.monotonic() - begin
    text = log.read_text(errors="replace")
    ends = re.findall(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", text, re.M)
    counts = [int(n) for n in ends[-1]] if ends else [0, 0, 0]
    failures = re.findall(r"^test (\S+) \.\.\. FAILED$", text, re.M)
    if took >= LIMIT_S:
        trouble = f"has not ended within {LIMIT_S} s"
    elif process.returncode and not failures:
        trouble = f"has ended with {process.returncode}"
    elif not process.returncode and not ends:
        trouble = "has said nothing of what came of it"
    return Result(job, took, used.ru_utime + used.ru_stime, *counts, trouble, failures)


RUNNING = set()
PRINTING = threading.Lock()


def yield_to_others(process):
    """Where the kernel shares processors among sessions, nice alone counts within one only."""
    try:
        pathlib.Path(f"/proc/{process.pid}/autogroup").write_text("10")
    except OSError:
        pass


def kill(process):
    """Ends a program, and what it has started in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def tell(result):
    """What came of a program, and all that it said if that is a failure."""
    bad = result.trouble or result.failures
    with PRINTING:
        print(f"{'FAILED' if bad else 'ok':6} {result.took:6.1f} s  {result.job.crate} "
              f"{result.job.name}: {result.passed} passed", flush=True)
        if bad:
            print((LOGS / f"{result.job.crate}-{result.job.name}.log").read_text(errors="replace"))
            if result.trouble:
                print(f"error: {result.job.crate} {result.job.name} {result.trouble}", flush=True)
    return result


def run_all(jobs):
    """Runs all jobs in their lanes."""
    def rank(job):
        return (LONG.index(job.name) if job.name in LONG else len(LONG), job.crate, job.name)
    jobs = sorted(jobs, key=rank)
    alone = [job for job in jobs if job.name in ALONE]
    computes = [job for job in jobs if job.computes]
    real = [job for job in jobs if not job.computes and job.name not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as second:
        others = [second.submit(lambda job: tell(run(job)), job) for job in computes]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as first:
            results = list(first.map(lambda job: tell(run(job)), real))
        results += [other.result() for other in others]
    return results + [tell(run(job)) for job in alone]


def doc_tests():
    """Those of documentation, by cargo; what came of them."""
    begin = time.monotonic()
    command = [CARGO, "test", "--workspace", "--doc", "--locked", "--no-fail-fast"]
    said = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    ends = re.findall(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", said.stdout,
                      re.M)
    counts = [sum(int(end[i]) for end in ends) for i in range(3)]
    (LOGS / "doc-tests.log").write_text(said.stdout)
    failures = re.findall(r"^test (.*) \.\.\. FAILED$", said.stdout, re.M)
    trouble = f"has ended with {said.returncode}" if said.returncode and not failures else ""
    job = Job("doc-tests", "", str(ROOT), command, False)
    return tell(Result(job, time.monotonic() - begin, 0.0, *counts, trouble, failures))


def main():
    words = sys.argv[1:]
    if words == ["--quick"]:
        os.environ.setdefault("WEIR_SIM_SEEDS", SEEDS_OF_EACH)
    begin = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    jobs = [job for program in list(build(["--workspace", "--tests"]))
            for job in jobs_of(*program, words)]
    built = time.monotonic() - begin
    if not jobs:
        sys.exit(f"error: no test has a name with {words}")
    print(f"built in {built:.0f} s; {len(jobs)} programs", flush=True)
    results = run_all(jobs)
    if not words:
        results.append(doc_tests())

    for computes, lane in [(False, "Real processes"), (True, "Simulated time, beside them")]:
        of = sorted((r for r in results if r.job.computes == computes), key=lambda r: -r.took)
        print(f"\n{lane}:")
        for result in of[:20]:
            print(f"{result.took:8.1f} s  {result.job.crate} {result.job.name}")
        print(f"{sum(r.took for r in of):8.1f} s  in {len(of)} programs")
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{cpu.ru_utime + cpu.ru_stime:8.1f} s  of processors, with the build\n")
    for result in results:
        for failure in result.failures:
            print(f"FAILED: {result.job.crate} {failure}")
        if result.trouble:
            print(f"FAILED: {result.job.crate} {result.job.name} {result.trouble}")
    passed, failed, ignored = (sum(r[i] for r in results) for i in (3, 4, 5))
    failed += sum(bool(r.trouble) for r in results)
    print(f"all tests: {passed} passed; {failed} failed; {ignored} ignored; "
          f"{time.monotonic() - begin:.0f} s, {built:.0f} s of them to build")
    return 1 if failed else 0


def stop(number, _frame):
    """Ends all programs, and this one."""
    for each in list(RUNNING):
        kill(each)
    os._exit(128 + number)


if __name__ == "__main__":
    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, stop)
    sys.exit(main())
