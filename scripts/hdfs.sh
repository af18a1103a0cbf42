#!/usr/bin/env bash
# What `weir-figures hdfs` compares with: the jars of HDFS and the program that reads from it, in target/hdfs. What is
# there already stays; exit 77: something is missing for it.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for tool in mvn javac; do
  command -v "$tool" >/dev/null || {
    printf 'needs %s (Debian: apt-get install maven default-jdk-headless)\n' "$tool" >&2
    exit 77
  }
done
source=testing/figures/hdfs
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/hdfs
mkdir -p "$place"
if ! cmp -s "$source/pom.xml" "$place/pom.xml"; then
  rm -rf "$place/lib"
  mvn -B -q -f "$source/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$place/lib" >&2 || exit 77
  cp "$source/pom.xml" "$place/pom.xml"
fi
if ! cmp -s "$source/Scan.java" "$place/Scan.java"; then
  rm -rf "$place/classes"
  javac -cp "$place/lib/*" -d "$place/classes" "$source/Scan.java"
  cp "$source/Scan.java" "$place/Scan.java"
fi
printf '%s\n' "$place"
