"""A search for a rare text with Spark: the experiment `weir-figures spark` runs it on the node without a disk.

search.py MASTER OPTIONS URI TEXT BLOCK_BYTES

OPTIONS is a file as spark-defaults.conf. All of it runs in the JVMs of the executors, without Python there. What comes
of it is a line of JSON: lines with the text, seconds, and how many tasks Spark has put at their data.
"""

import json
import sys
import time
from collections import Counter

import pyspark.sql.functions as F
from pyspark.sql import SparkSession

master, options, uri, text, block = sys.argv[1:]
build = SparkSession.builder.master(master)
with open(options) as lines:
    for line in lines:
        if line.strip() and not line.startswith("#"):
            build = build.config(*line.rstrip("\n").split(" ", 1))
for key, value in {
    # A task for each block, and as many at a time as there are workers.
    "spark.sql.files.maxPartitionBytes": block,
    "spark.sql.files.openCostInBytes": "0",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}.items():
    build = build.config(key, value)
spark = build.getOrCreate()
sc = spark.sparkContext
sc.setLogLevel("ERROR")
# All executors are there, and have compiled what they run.
rows = spark.range(0, 1_000_000, 1, 4 * int(sc.getConf().get("spark.cores.max")))
rows.filter(F.col("id").cast("string").contains("77")).count()
begin = time.monotonic()
found = spark.read.text(uri).filter(F.col("value").contains(text)).count()
seconds = time.monotonic() - begin
app = sc.applicationId
spark.stop()
print(json.dumps({"lines": found, "seconds": seconds, "application": app}), file=sys.stderr)
