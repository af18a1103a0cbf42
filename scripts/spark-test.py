"""What people do with Spark, on a cluster of Weir: scripts/java.sh runs it.

spark-test.py JAR URI local|workers [HOST...]

local: all in this process. workers: with a master and two workers, each a process of its own.
HOST: the machines of the data servers, if each has a name of its own; the workers then call
themselves as the first two, and tasks have to run where their data is. WEIR is the program `weir`.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from pathlib import Path

import pyspark
import pyspark.sql.functions as F
from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS = 200_000
BLOCKS = 16
START_S = 60
# What a task sleeps that another one has to replace; and how long that may take.
STUCK_S = 120
LIMIT_S = 90


class Standalone:
    """A master and workers of Spark, each a process of its own."""

    def __init__(self, names):
        self.processes = []
        master = ["master.Master", "--host", "127.0.0.1"]
        self.url = self.start(master, r"Starting Spark master at (spark://[^\s,\"]+)")
        for n, name in enumerate(names):
            worker = ["worker.Worker", "--host", name, "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", f"work-{n}", self.url]
            self.start(worker, "Successfully registered with master ([^\\s,\"]+)")

    def start(self, command, sign):
        home = os.path.dirname(pyspark.__file__)
        log = Path(f"{command[0]}-{len(self.processes)}.log")
        with log.open("w") as out:
            program = [home + "/bin/spark-class", "org.apache.spark.deploy." + command[0]]
            ports = ["--port", "0", "--webui-port", "0"]
            environment = {**os.environ, "SPARK_HOME": home, "SPARK_DAEMON_MEMORY": "256m"}
            self.processes.append(
                subprocess.Popen(
                    program + ports + command[1:], stdout=out, stderr=out, env=environment
                )
            )
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if found := re.search(sign, log.read_text()):
                return found.group(1)
            time.sleep(0.1)
        self.close()
        raise SystemExit(f"{command[0]} has not started within {START_S} s:\n{log.read_text()}")

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()


def weir(*arguments):
    """Runs `weir` on the cluster; what it prints."""
    command = [os.environ["WEIR"], *arguments, "--name", urllib.parse.urlparse(uri).netloc]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def place(name):
    """A path below URI, as `weir` takes it."""
    return "weir:" + urllib.parse.urlparse(uri).path + name


def session(master, hosts):
    weir("mkdir", "-p", place("events"))
    build = SparkSession.builder.master(master).appName("weir")
    for key, value in {
        "spark.jars": jar,
        "spark.hadoop.fs.weir.impl": "weir.hadoop.WeirFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.weir.impl": "weir.hadoop.WeirFs",
        "spark.hadoop.fs.weir.block.size": "1m",
        "spark.sql.warehouse.dir": uri + "warehouse",
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.memory": "1g",
        # A task that is slow is run a second time.
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.multiplier": "2",
        "spark.speculation.quantile": "0.5",
        # A task waits for the machine that has its data.
        "spark.locality.wait": "10s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": uri + "events",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        build = build.config(key, value)
    if hosts:
        # There are two workers: each is near to two data servers.
        near = f"{hosts[2]}={hosts[0]},{hosts[3]}={hosts[1]}"
        build = build.config("spark.hadoop.fs.weir.hosts", near)
    return build.getOrCreate()


def sums(frame):
    return frame.agg(F.sum("id"), F.count("*"), F.countDistinct("k"), F.countDistinct("s")).collect()


def formats(spark, base):
    """Each form that data has, written and read again."""
    rows = spark.range(ROWS).select(
        "id",
        (F.col("id") % 17).alias("k"),
        F.concat(F.lit("row "), F.col("id").cast("string")).alias("s"),
    )
    want = sums(rows)
    rows.select("s").write.text(base + "text")
    text = spark.read.text(base + "text")
    assert text.count() == ROWS
    assert text.filter(F.col("value") == "row 7777").count() == 1
    print("text: as written")
    for form in ["parquet", "orc"]:
        path = base + form
        rows.write.format(form).save(path)
        assert sums(spark.read.format(form).load(path)) == want, form
        rows.limit(10).write.mode("overwrite").format(form).save(path)
        assert spark.read.format(form).load(path).count() == 10
        print(f"{form}: as written, and overwritten")

    parts = base + "parts"
    rows.write.partitionBy("k").parquet(parts)
    third = rows.filter("k = 3")
    assert spark.read.parquet(parts).filter("k = 3").count() == third.count()
    # Only those partitions that have new rows.
    dynamic = third.limit(7).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    dynamic.partitionBy("k").parquet(parts)
    assert spark.read.parquet(parts).count() == ROWS - third.count() + 7

    rows.write.saveAsTable("t")
    assert sums(spark.table("t")) == want
    rows.limit(5).write.mode("append").saveAsTable("t")
    assert spark.table("t").count() == ROWS + 5
    rows.limit(8).write.mode("overwrite").saveAsTable("t")
    assert spark.table("t").count() == 8
    print("partitions and tables: as written, appended and overwritten")


def word_count(spark, base):
    words = spark.sparkContext.textFile(base + "text").flatMap(str.split).map(lambda word: (word, 1))
    words.reduceByKey(lambda a, b: a + b).saveAsTextFile(base + "words")
    counts = spark.sparkContext.textFile(base + "words").filter(lambda line: "'row'" in line)
    assert counts.collect() == [f"('row', {ROWS})"]
    print("word count: right")


def where(spark):
    """Reads a file whose blocks have one place each; how many are at which host."""
    weir("mkdir", place("where"))
    weir("setlayout", "--layout", "chunked", "--chunk", "1M", "--copies", "1", place("where"))
    lines = BLOCKS * (1 << 20) // 64
    Path("lines").write_text(("x" * 63 + "\n") * lines)
    weir("cp", "-q", "lines", place("where/lines"))
    layout = json.loads(weir("layout", "--json", place("where/lines")))
    segments = (layout[0] if isinstance(layout, list) else layout)["segments"]
    # Those behind the end are for what may be appended.
    blocks = [segment["objects"] for segment in segments if segment["start"] < lines * 64]
    stored = [block["host"] for [block] in blocks]
    assert len(stored) == BLOCKS, stored
    spark.sparkContext.setJobGroup("where", "")
    assert spark.sparkContext.textFile(uri + "where/lines").count() == lines
    return Counter(stored)


def numbers(sc, path):
    """Whether each row is there once."""
    return sorted(map(int, sc.textFile(path).collect())) == list(range(800))


def twice(spark, base):
    """The first task gets stuck in the middle of its output: its second try ends first."""

    def stuck(part):
        task = TaskContext.get()
        first = task.partitionId() == 0 and task.attemptNumber() == 0
        for n, row in enumerate(part):
            if first and n == 50:
                time.sleep(STUCK_S)
            yield row

    spark.sparkContext.setJobGroup("twice", "")
    begin = time.monotonic()
    rows = spark.sparkContext.parallelize(range(800), 8)
    rows.mapPartitions(stuck).saveAsTextFile(base + "twice")
    assert time.monotonic() - begin < LIMIT_S
    assert numbers(spark.sparkContext, base + "twice")


def executors(app):
    """The processes of the executors."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text().split("\0")
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and app in words:
                yield int(process.name)


def loss(spark, base):
    """An executor is killed while it writes."""
    sc = spark.sparkContext
    done = []

    def slowly(row):
        time.sleep(0.01)
        return row

    def write():
        sc.setJobGroup("loss", "")
        sc.parallelize(range(800), 8).map(slowly).saveAsTextFile(base + "loss")
        done.append(True)

    thread = threading.Thread(target=write)
    thread.start()
    end = time.monotonic() + LIMIT_S
    stages = sc.statusTracker()
    while not any(
        (stage := stages.getStageInfo(number)) and stage.numCompletedTasks > 0
        for number in stages.getActiveStageIds()
    ):
        assert time.monotonic() < end, "no task has ended"
        time.sleep(0.05)
    victim = sorted(executors(sc.applicationId))[0]
    os.kill(victim, signal.SIGKILL)
    thread.join(LIMIT_S)
    assert done, "the job has not ended"
    assert numbers(sc, base + "loss")
    assert not Path(f"/proc/{victim}").exists() or victim not in executors(sc.applicationId)


def told(app):
    """The events of an application that has ended, from the log that it has on Weir."""
    return [json.loads(line) for line in weir("cat", place("events/" + app)).splitlines()]


def tasks(events, group):
    """What is told of the tasks of a group of jobs."""
    stages = set()
    for event in events:
        if event["Event"] == "SparkListenerJobStart":
            if (event.get("Properties") or {}).get("spark.jobGroup.id") == group:
                stages.update(event["Stage IDs"])
    ends = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return [event["Task Info"] for event in ends if event["Stage ID"] in stages]


def check_events(events, stored, hosts, workers):
    assert events[-1]["Event"] == "SparkListenerApplicationEnd"
    if not workers:
        return
    assert any(event["Event"] == "SparkListenerExecutorRemoved" for event in events)
    print("an executor was killed: the job ended, with each row once")
    if hosts:
        ran = Counter(task["Host"] for task in tasks(events, "where"))
        near = dict(zip(hosts, hosts[:2] * 2))
        want = Counter(near[host] for host in stored.elements())
        local = Counter(task["Locality"] for task in tasks(events, "where"))
        assert (ran, local) == (want, Counter(NODE_LOCAL=BLOCKS)), (ran, want, local)
        print(f"tasks ran where their blocks are: {dict(ran)}")
        assert any(task["Speculative"] for task in tasks(events, "twice"))
        print("a task that was stuck ran a second time elsewhere: each row once")


def main(kind, hosts):
    with contextlib.ExitStack() as stack:
        master = "local[2]"
        if kind == "workers":
            standalone = Standalone(hosts[:2] or ["127.0.0.1", "127.0.0.1"])
            stack.callback(standalone.close)
            master = standalone.url
        spark = session(master, hosts)
        stack.callback(spark.stop)
        sc = spark.sparkContext
        sc.setLogLevel("ERROR")
        base = uri + "data/"
        formats(spark, base)
        word_count(spark, base)
        stored = where(spark)
        if kind == "workers":
            # A second try never runs at the host of the first one.
            if hosts:
                twice(spark, base)
            loss(spark, base)
        hadoop = sc._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        app = sc.applicationId
        version = spark.version
        spark.stop()
        check_events(told(app), stored, hosts, kind == "workers")
    print(f"Spark {version} ({kind}) with Hadoop {hadoop}: all as it should be", flush=True)


jar, uri = sys.argv[1:3]
main(sys.argv[3], sys.argv[4:])
