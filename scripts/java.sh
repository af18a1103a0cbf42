#!/usr/bin/env bash
# The jar for Hadoop: builds the native library, puts it into the jar, and runs Hadoop's tests of
# file systems on a cluster of four targets that it starts and removes.
#
#   scripts/java.sh package             target/java/maven/weir-hadoop-VERSION.jar
#   scripts/java.sh test [-Dtest=...]   all tests; what follows goes to Maven
#   scripts/java.sh spark               Spark of PyPI: in one process, and a master with workers
#   scripts/java.sh short               some, with what Maven has kept; exit 77: that is missing
#   scripts/java.sh fetch FILE          downloads what `short` needs, once (FILE says that it is there)
#
#   SPARK_VERSION  of PyPI's pyspark, one or more   (3.5.5 4.0.1)
#   WEIR_PROFILE   what to build: debug or release  (release)
#   WEIR_PROGRAM   a `weir` that is built; else it is built here
#   WEIR_LIBRARY   a libweir_jni.so that is built; else it is built here
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf '%s\n' "$*" >&2; exit "${code:-1}"; }

read -ra sparks <<<"${SPARK_VERSION:-3.5.5 4.0.1}"
what=${1:-}
shift || true
[[ $what == package || $what == test || $what == spark || $what == short || $what == fetch ]] ||
  die "usage: $0 package | spark | short | fetch FILE | test [MAVEN ARGUMENT...]"
[[ $what != short ]] || code=77
tools=(mvn javac strip python3)
[[ $what != fetch ]] || tools=(mvn javac)
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null && continue
  if [[ $what == fetch ]]; then
    echo "no $tool here (Debian: maven default-jdk-headless): the tests of the jar are skipped" >&2
    exit 0
  fi
  die "needs $tool (Debian: apt-get install maven default-jdk-headless binutils python3)"
done

if [[ $what == fetch ]]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  provider=$(sed -n '/surefire-plugin/{n;s/.*<version>\(.*\)<.*/\1/p}' bindings/java/pom.xml)
  # Tests that nobody has: their dependencies and plugins come, but for what runs tests. A server
  # that does not answer holds nobody up for ever.
  if timeout 1200 mvn -B -q -f bindings/java/pom.xml "-Dnative.dir=$scratch" "-Dbuild.dir=$scratch/maven" -Drevision=0 \
    test -Dtest=None -Dsurefire.failIfNoSpecifiedTests=false </dev/null >&2 &&
    timeout 1200 mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get \
      "-Dartifact=org.apache.maven.surefire:surefire-junit4:$provider" </dev/null >&2; then
    mkdir -p "$(dirname "$1")"
    touch "$1"
  else
    echo "Maven cannot download what the tests of the jar need; they are skipped" >&2
  fi
  exit 0
fi

profile=${WEIR_PROFILE:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
flags=()
[[ $profile == debug ]] || flags=(--profile "$profile")
packages=()
[[ -n ${WEIR_LIBRARY:-} ]] || packages+=(-p weir-jni)
[[ $what == package || -n ${WEIR_PROGRAM:-} ]] || packages+=(-p weir)
((${#packages[@]} == 0)) || "${CARGO:-cargo}" build --locked "${flags[@]}" "${packages[@]}"
library=${WEIR_LIBRARY:-$target/$profile/libweir_jni.so}

# The library stands in the jar under the hash of its contents; the index says which is for what.
native=$target/java/native
rm -rf "$native"
rm -rf "$target/java/maven/classes/weir/native"
mkdir -p "$native/weir/native"
strip --strip-unneeded -o "$native/libweir_jni.so" "$library"
hash=$(sha256sum "$native/libweir_jni.so" | cut -d ' ' -f 1)
case $(uname -m) in
  x86_64) machine=amd64 ;;
  *) machine=$(uname -m) ;;
esac
mkdir "$native/weir/native/$hash"
mv "$native/libweir_jni.so" "$native/weir/native/$hash/"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
printf 'version=%s\n%s-%s=%s\n' "$version" "$(uname -s)" "$machine" "$hash" \
  >"$native/weir/native/index.properties"

maven=(mvn -B -q -f bindings/java/pom.xml "-Dnative.dir=$native" "-Dbuild.dir=$target/java/maven"
  "-Drevision=$version")
jar=$target/java/maven/weir-hadoop-$version.jar
if [[ $what == package || $what == spark ]]; then
  "${maven[@]}" package -DskipTests
  ls "$jar"
  [[ $what == spark ]] || exit 0
fi
if [[ $what == short ]]; then
  maven+=(-o)
  set -- -Dtest=WeirTest
fi

weir=$(realpath "${WEIR_PROGRAM:-$target/$profile/weir}")
place=$(mktemp -d "${TMPDIR:-/tmp}/weir-java.XXXXXX")
export XDG_STATE_HOME=$place XDG_RUNTIME_DIR=$place
cleanup() {
  "$weir" down --name java-test >/dev/null 2>&1 || true
  rm -rf "$place"
}
trap cleanup EXIT
"$weir" up --name java-test --targets 4 --targets-per-server 1 >"$place/up" 2>&1 ||
  { cat "$place/up" >&2; exit 1; }
# Each data server gets a machine's name of its own, as far as this user may give any. They lead to
# this machine in /etc/hosts as the tests see it.
hosts=()
there=()
if unshare --uts true 2>/dev/null; then
  for server in 1 2 3 4; do
    read -r pid _ <"$place/weir/java-test/run/data-$server.pid"
    kill "$pid"
    for ((tries = 300; tries > 0; tries--)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    ((tries > 0)) || die "data server $server (process $pid) has not ended within 30 s"
    unshare --uts bash -c 'hostname "$1" && "$2" up --name java-test' _ "node$server" "$weir" \
      >>"$place/up" 2>&1 || { cat "$place/up" >&2; exit 1; }
    echo "127.0.0.1$server node$server" >>"$place/hosts"
  done
  cat /etc/hosts >>"$place/hosts"
  echo "127.0.0.1 $(hostname)" >>"$place/hosts"
  there=(unshare --mount bash -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$place/hosts")
  if "${there[@]}" getent hosts node1 >/dev/null 2>&1; then
    hosts=(node1 node2 node3 node4)
  else
    there=()
  fi
fi
rm -rf "$target/java/maven/surefire-reports"
if [[ $what == spark ]]; then
  test=$PWD/scripts/spark-test.py
  export SPARK_LOCAL_IP=127.0.0.1 WEIR="$weir"
  for spark in "${sparks[@]}"; do
    export PYSPARK_PYTHON=$target/java/spark-$spark/bin/python
    # One whose making was interrupted is made again.
    "$PYSPARK_PYTHON" -c 'import pyspark' 2>/dev/null || {
      python3 -m venv --clear "$target/java/spark-$spark"
      "$PYSPARK_PYTHON" -m pip install -q --disable-pip-version-check "pyspark==$spark"
    }
    for master in local workers; do
      (cd "$place" && "${there[@]}" "$PYSPARK_PYTHON" "$test" "$jar" \
        "weir://java-test/$spark-$master/" "$master" "${hosts[@]}") 2>"$place/said" ||
        { tail -n 200 "$place/said"; exit 1; }
    done
  done
  exit
fi
failed=0
"${there[@]}" "${maven[@]}" test "-Dweir.test.uri=weir://java-test/" \
  "-Dweir.test.program=$weir" "-Dweir.test.hosts=$(IFS=, && echo "${hosts[*]}")" "$@" 2>&1 |
  tee "$place/said" || failed=1
if [[ $what == short ]] && grep -qE 'offline mode|Could not resolve dependencies' "$place/said"; then
  die "needs what \`make test-java\` has downloaded"
fi
# What each class of tests has run.
python3 - "$target/java/maven/surefire-reports" <<'PY'
import glob, sys
import xml.etree.ElementTree as tree
rows, skips = {}, {}
for name in sorted(glob.glob(sys.argv[1] + "/TEST-*.xml")):
    for case in tree.parse(name).getroot().iter("testcase"):
        of = case.get("classname").rpartition(".")[2]
        row = rows.setdefault(of, [0, 0, 0])
        bad = case.find("failure") is not None or case.find("error") is not None
        skipped = case.find("skipped")
        row[2 if bad else 1 if skipped is not None else 0] += 1
        if skipped is not None:
            skips.setdefault(of, []).append((case.get("name"), (skipped.get("message") or "").split("\n")[0]))
        if bad:
            print("FAILED", of, case.get("name"))
print(f"{'passed':>7} {'skipped':>7} {'failed':>7}")
for of, (passed, skipped, failed) in sorted(rows.items()):
    print(f"{passed:7} {skipped:7} {failed:7}  {of}")
    for test, why in skips.get(of, []):
        print(f"{'':26}skipped {test}: {why[:120]}")
print(f"{sum(r[0] for r in rows.values()):7} {sum(r[1] for r in rows.values()):7} "
      f"{sum(r[2] for r in rows.values()):7}  in all")
PY
exit "$failed"
