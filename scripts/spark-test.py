"""What people do with Spark, on a cluster of Weir: scripts/java.sh runs it.

spark-test.py JAR URI MASTER
"""

import sys

import pyspark.sql.functions as F
from pyspark.sql import SparkSession

ROWS = 200_000
jar, uri, master = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .appName("weir")
    .config("spark.jars", jar)
    .config("spark.hadoop.fs.weir.impl", "weir.hadoop.WeirFileSystem")
    .config("spark.hadoop.fs.AbstractFileSystem.weir.impl", "weir.hadoop.WeirFs")
    .config("spark.sql.warehouse.dir", uri + "warehouse")
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.speculation", "true")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
base = uri + "data/"
rows = spark.range(ROWS).select(
    "id",
    (F.col("id") % 17).alias("k"),
    F.concat(F.lit("row "), F.col("id").cast("string")).alias("s"),
)


def sums(frame):
    return frame.agg(F.sum("id"), F.count("*"), F.countDistinct("k"), F.countDistinct("s")).collect()


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
rows.write.partitionBy("k").parquet(base + "parts")
assert spark.read.parquet(base + "parts").filter("k = 3").count() == rows.filter("k = 3").count()
rows.write.saveAsTable("t")
rows.limit(5).write.mode("append").saveAsTable("t")
assert spark.table("t").count() == ROWS + 5
print("partitions and tables: as written, and appended")
words = spark.sparkContext.textFile(base + "text").flatMap(str.split).map(lambda word: (word, 1))
counts = words.reduceByKey(lambda a, b: a + b)
counts.saveAsTextFile(base + "words")
assert spark.sparkContext.textFile(base + "words").filter(lambda line: "'row'" in line).collect() == [
    f"('row', {ROWS})"
]
print("word count: right")
version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
print(f"Spark {spark.version} ({master}) with Hadoop {version}: all as it should be")
