# Everything that is done in this repository. `make demo` and `make test` set up what they need: a fresh machine with
# Python 3.11+ and make is enough, and no step needs root.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# All distributions of this repository; what they need of others is in the lock.
DISTRIBUTIONS := $(shell sed -n 's/^name = "\(.*\)"$$/\1/p' pyproject.toml packages/*/pyproject.toml)
PLACES := . $(addprefix ./,$(wildcard packages/*))
LOCKED := requirements/build.lock requirements/dev.lock
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tools of `make lock`, `make audit` and `make sbom`, apart: what they need must not bear upon the tests.
TOOLS := $(VENV)/tools
TOOLS_STAMP := $(TOOLS)/.installed
# One worker more than the two cores that the parts are measured on: tests wait for a fifth of their time.
PYTEST := $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart 0

# The newest Python we know, or the one that is given: make PYTHON=/path/to/python3.12 test
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# What is imported is compiled once, not in each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-core test-rest test-long test-all lint types unit spark-cluster spark-matrix django bench dist dist-test docs soak simulate fuzz fuzz-door kills workers models object-stores takeover month bridge kafka kafka-jars relay-campaign h2spec compat compat-identities browser stubs lock audit sbom clean

help:
	@echo 'make demo               a year of flight departures through a broker that is killed on the way'
	@echo 'make test               lint, types and the core of the tests, of every package (minutes)'
	@echo 'make lint | types | test-core   a part of it'
	@echo 'make test-rest          the other tests: every crash step, more examples, Kafka, all of Spark'
	@echo 'make test-all           both'
	@echo 'make unit [ARGS=...]    pytest alone, with arguments: make unit ARGS="tests/unit -k delay"'
	@echo 'make spark-cluster      pipeline, relay and format("tarry") on clusters: executors, workers and drivers killed; YARN, Spark Connect (minutes)'
	@echo 'make spark-matrix       the tests of Spark with each PySpark that pyproject.toml allows: ARGS="--only 4.3" (minutes each)'
	@echo 'make bench [ONLY=name]  measure; writes benchmarks/results/latest.json'
	@echo 'make soak [ARGS=...]    load with kills, and whether memory, descriptors and files stay: ARGS="--hours 3"; in parts: --directory'
	@echo 'make simulate [ARGS=...] thousands of simulated crashes, of one broker and of takeovers: ARGS="--crashes 10000"; a seed that failed: ARGS="--of takeovers --seed N"; ARGS=--defects'
	@echo 'make kills [ARGS=...]   brokers killed amid hand-outs: "done" is never said of what was handed out: ARGS="--open 200 --serve 50"'
	@echo 'make workers [ARGS=...] workers that are stopped and killed under load: nothing lost or doubled: ARGS="--terms 200 --kills 50 --seed N"'
	@echo 'make bridge [ARGS=...]  the bridge beside RabbitMQ; it, Tarry and RabbitMQ killed under load, nothing lost or doubled: ARGS="--kills 50 --per-second 2000 --seed N", or each kill by itself: "--per-second 500 --apart-s 21 --sync-s 0.3" (Debian: apt-get install rabbitmq-server)'
	@echo 'make models [ARGS=...]  every state of the takeover models (docs/takeover-model.md; g++, a quarter of an hour, 4 GiB): ARGS="--only progress", ARGS=--traces'
	@echo 'make object-stores      log engines on a real server of the S3 protocol, which it builds with Go (minutes, once)'
	@echo 'make takeover [ARGS=...] brokers that take a log in an object store over from one another, killed, stopped, cut off, slow: every answer is checked: ARGS="--takeovers 200 --delay-ms 60", ARGS="--seed N"'
	@echo 'make fuzz [ARGS=...]    nearly valid calls on every front: ARGS="--seconds 600", ARGS="--seed N"'
	@echo 'make fuzz-door [ARGS=...] callers without a right at every port of a broker with identities: the same arguments'
	@echo 'make month              a simulated month of commits to the store, one a minute; about an hour'
	@echo 'make django             the project of Django with Django 6, and the suites of Django and of django-tasks-db (needs Python 3.12 or newer: DJANGO_PYTHON=/path/to/python3.12)'
	@echo 'make kafka              the relay with a real Kafka: kill -9 of either, a herd (needs Java and Maven; minutes)'
	@echo 'make relay-campaign [ARGS=...] a relay on a cluster, its driver, executors and Kafka killed ten times each, at 500/s and 2,000/s: ARGS="--rates 500 --kills 1"'
	@echo 'make kafka-jars         fetch what a Kafka for the tests needs into ~/.cache/tarry'
	@echo 'make h2spec             HTTP/2 conformance of the gRPC server, strict, in the clear and over TLS (needs Go)'
	@echo 'make compat [ARGS=...]  official clients: RocketMQ in Python, Java, Node, Go and Rust; lmstfy; AWS SDKs, Celery and moto for SQS and EventBridge Scheduler; pika, amqplib and Spring AMQP beside the bridge; suites for Django'\''s tasks: ARGS="--language go", "--language sqs-java", "--language rabbitmq-spring", "--language lmstfy-php", "--language django-tasks-db", "--language e2e" (what is installed of them)'
	@echo 'make compat-identities [ARGS=...]  official clients with two keys of different rights, wrong and removed ones: RocketMQ v5 in five languages, classic in Java and Go, lmstfy in Go; ARGS="--language go --workers 2"'
	@echo 'make browser            the console in headless Chromium (Debian: apt-get install chromium)'
	@echo "make stubs              compile RocketMQ's .proto files, after a change of them"
	@echo 'make docs               the site of docs/ into dist/site, strict; its search needs no network'
	@echo 'make dist               a wheel of each distribution: tarry, and what is in packages/'
	@echo 'make dist-test          the wheels, the same when built again, in fresh environments of each Python that is there'
	@echo 'make lock               fit requirements/*.lock to what is declared, after a change of that: ARGS=--upgrade renews all'
	@echo 'make audit              known holes of what is locked (needs a database of them: exit code 2 where none is reached)'
	@echo 'make sbom               what is locked as CycloneDX, dist/tarry.cdx.json'
	@echo 'make clean              remove what was made, the virtual environment too'
	@echo
	@echo 'The virtual environment is made with $(or $(PYTHON),no Python that is new enough); another: make PYTHON=python3.12 test'

setup: $(STAMP)

$(STAMP): pyproject.toml $(wildcard packages/*/pyproject.toml) $(LOCKED)
	@test -n '$(PYTHON)' || { echo 'Tarry needs Python 3.11 or newer. Found: '"$$(python3 --version 2>&1)"'. Name another: make PYTHON=/path/to/python3.12 test' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; v = sys.version.split()[0]; sys.exit("Tarry needs Python 3.11 or newer; $(PYTHON) is " + v if sys.version_info < (3, 11) else 0)'
	@echo "Making $(VENV) with $$('$(PYTHON)' --version) and installing Tarry with all it needs (some minutes, once)"
	@'$(PYTHON)' -m venv $(VENV) || '$(PYTHON)' -m virtualenv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make virtual environments: install its venv module, or name another Python with PYTHON=" >&2; exit 1; }
	@$(PIP) --require-hashes -r requirements/build.lock
	@# Builds are not isolated: an isolated one would fetch what it needs itself, unlocked.
	@$(PIP) --require-hashes --no-build-isolation -r requirements/dev.lock
	@$(PIP) --no-index --no-deps --no-build-isolation $(addprefix --editable ,$(PLACES))
	@touch $(STAMP)

$(TOOLS_STAMP): requirements/tools.lock
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.12 lock' >&2; exit 1; }
	@'$(PYTHON)' -m venv $(TOOLS) || '$(PYTHON)' -m virtualenv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.lock
	@touch $(TOOLS_STAMP)

# What is locked stays while it fits: ARGS=--upgrade takes the newest of all.
lock: COMPILE = $(TOOLS)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command 'make lock' $(ARGS)
lock: $(TOOLS_STAMP)
	printf '%s\n' '-r requirements/build.in' '-e .[dev]' $(addprefix '-e ./,$(addsuffix ',$(wildcard packages/*))) \
		| $(COMPILE) $(patsubst %,--no-emit-package %,$(DISTRIBUTIONS)) --output-file requirements/dev.lock -
	$(COMPILE) --constraints requirements/dev.lock --output-file requirements/build.lock requirements/build.in
	$(COMPILE) --output-file requirements/tools.lock requirements/tools.in
	$(COMPILE) --constraints requirements/build.lock --constraints requirements/tools.lock \
		--output-file requirements/container.lock requirements/container.in

audit: $(TOOLS_STAMP)
	@$(TOOLS)/bin/python -m tests.audit $(ARGS)

sbom: $(TOOLS_STAMP)
	@mkdir -p dist
	$(TOOLS)/bin/python -m cyclonedx_py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--output-file dist/tarry.cdx.json requirements/dev.lock

demo: $(STAMP)
	$(BIN)/tarry demo $(ARGS)

test: lint types test-core

test-all: test test-rest

test-core: $(STAMP)
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(PYTEST) --part core $(ARGS)

test-rest: $(STAMP)
	$(PYTEST) --part rest $(ARGS)

test-long: $(STAMP)
	$(PYTEST) --part long $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(PYTEST) -m 'not kafka_slow and not browser' $(ARGS)

spark-cluster: $(STAMP)
	SPARK_CLUSTER_TEST=1 $(BIN)/pytest $(wildcard tests/spark/test_cluster_*.py) tests/spark/test_datasource_cluster.py \
		tests/spark/test_datasource_connect.py tests/spark/test_datasource_kill.py $(ARGS)

DJANGO_PYTHON ?= python3.12
django: $(STAMP)
	'$(DJANGO_PYTHON)' -m venv $(VENV)/django6
	$(VENV)/django6/bin/python -m pip install --quiet --disable-pip-version-check ./packages/loopgrpc --editable ./packages/client --editable . 'django>=6'
	DJANGO_PYTHON=$(CURDIR)/$(VENV)/django6/bin/python $(BIN)/pytest --part rest tests/django_project $(ARGS)
	DJANGO_PYTHON=$(CURDIR)/$(VENV)/django6/bin/python $(BIN)/python -m tests.compat.django.run

spark-matrix: $(STAMP)
	$(BIN)/python -m tests.spark.matrix $(ARGS)

stubs: $(STAMP)
	$(BIN)/python -m tests.rocketmq.stubs

dist-test: $(STAMP)
	$(BIN)/python -m tests.wheels.run $(ARGS)

dist: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir dist $(PLACES)

docs: $(STAMP)
	$(BIN)/mkdocs build --strict --config-file site/mkdocs.yml $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

soak: $(STAMP)
	$(BIN)/python -m benchmarks.soak $(ARGS)

simulate: $(STAMP)
	$(BIN)/python -m tests.crash.simulate $(ARGS)

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz.fuzz $(ARGS)

fuzz-door: $(STAMP)
	$(BIN)/python -m tests.fuzz.door $(ARGS)

workers: $(STAMP)
	$(BIN)/python -m tests.worker.campaign $(ARGS)

bridge: $(STAMP)
	$(BIN)/python -m tests.rabbitmq.campaign $(ARGS)

kills: $(STAMP)
	$(BIN)/python -m tests.crash.kills $(ARGS)

models: $(STAMP)
	$(BIN)/python -m tests.models.takeover $(ARGS)

object-stores: $(STAMP)
	TARRY_BUILD_VERSITYGW=1 TARRY_BUILD_CLOUDS=1 $(BIN)/pytest --timeout 1800 tests/engines tests/unit/test_backup_objects.py tests/unit/test_backup_clouds.py $(ARGS)

takeover: $(STAMP)
	TARRY_BUILD_VERSITYGW=1 $(BIN)/python -m tests.takeover.campaign $(ARGS)

month: $(STAMP)
	TARRY_MONTH_STEP_MS=60000 $(BIN)/pytest -s --timeout 0 tests/unit/test_store_month.py $(ARGS)

kafka: $(STAMP)
	$(BIN)/pytest tests/kafka $(ARGS)

kafka-jars: $(STAMP)
	$(BIN)/python -m tests.kafka.server

relay-campaign: $(STAMP)
	$(BIN)/python -m tests.kafka.campaign $(ARGS)

h2spec: $(STAMP)
	$(BIN)/python -m tests.loopgrpc.h2spec $(ARGS)

compat: $(STAMP)
	$(BIN)/python -m tests.compat $(ARGS)

compat-identities: $(STAMP)
	$(BIN)/python -m tests.compat.identities.run $(ARGS)

browser: $(STAMP)
	$(BIN)/pytest tests/browser $(ARGS)

clean:
	rm -rf $(VENV) build dist packages/*/dist demo-out spark-warehouse metastore_db derby.log .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src packages tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
