# Widerow. `make` lists the targets. Everything lives in .venv; nothing is installed outside this folder.

PYTHON ?= python3
PORT ?= 8080
DATA ?= widerow-demo
N ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src/widerow -name '*.py')
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Modules are compiled when they are first used: most of them never are.
INSTALL := $(PIP) install --quiet --no-compile
FETCHED = $${WIDEROW_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/widerow}
# More files at a time than cores: tests wait, for servers and for processes.
SIDE_BY_SIDE := --numprocesses 3 --dist loadfile --no-loadscope-reorder
# What the dashboard takes from npm: charts. Node.js comes from PyPI and is needed here only, never by users.
ASSETS := src/widerow/server/ui/packages/uPlot.esm.js
CACHES := .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache site build dist bench/results \
	tools/assets/node_modules src/widerow/server/ui/packages

# Without __pycache__ each of the hundreds of processes that tests start would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run assets servers test test-rest test-all test-cluster test-year check format bench storm neighbour backup-drill clock crash foul crash-rollups crash-pipeline frozen mad-sensor fuzz dist lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Variables: PYTHON=$(PYTHON)  PORT=$(PORT)  DATA=$(DATA)  N= (how many)  ARGS= (passed on)"

setup: $(VENV)/.run ## Make .venv with everything the other targets need
	@$(MAKE) --no-print-directory --question $(VENV)/.dev $(ASSETS) $(VENV)/.warm || \
		$(MAKE) --no-print-directory --jobs=2 $(VENV)/.dev $(ASSETS) $(VENV)/.warm

assets: $(ASSETS) ## Put the packages of the dashboard beside its page (setup, run and dist do)

run: $(VENV)/.run $(VENV)/.warm ## Start the demo: a server and a simulated fleet (PORT=, DATA=)
	@$(MAKE) --no-print-directory $(ASSETS) || echo "the dashboard will show no charts, and say so: its packages could not be fetched"
	env PYTHONPATH=src $(BIN)/python -m widerow.cli.main demo --port $(PORT) --data $(DATA) $(ARGS)

servers: setup ## Start Cassandra, a Bigtable emulator, Kafka and mosquitto to try things on (ARGS=kafka for one)
	@sh tools/system_packages.sh
	$(BIN)/python -m tests.servers $(ARGS)

test: setup ## Run the tests that need Python alone, in about six minutes (ARGS='-k name' for some)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m 'not rest' --hypothesis-profile=quick $(ARGS)

test-rest: setup real-servers ## Run the others: Cassandra, Bigtable, Kafka, mosquitto, kills and pauses, every law in full
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m '(rest or law) and not cluster' $(ARGS)

test-all: ## Run test, then test-rest
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

.PHONY: real-servers
real-servers: $(VENV)/.dev
	@sh tools/system_packages.sh
	@$(BIN)/python -m tests.servers --fetch

test-cluster: setup ## Run the tests that need three Cassandra nodes (4 GiB of memory)
	@sh tools/system_packages.sh
	@$(BIN)/python -m tests.servers --fetch cassandra
	$(BIN)/python -m pytest -m cluster $(ARGS)

test-year: setup ## Compare every hour of a year of rollups with Polars (N= seconds between reports, 600)
	env WIDEROW_YEAR_DAYS_APART=1 WIDEROW_YEAR_PACE_S=$(or $(N),600) $(BIN)/python -m pytest tests/system/test_year.py $(ARGS)

check: setup ## Lint, types, layers, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: setup ## Let ruff format and fix the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## Measure ingest, queries, MQTT, the pipeline, blocks, sampling and devices (ARGS=--quick to see that it works)
	$(BIN)/python -m bench.ingest $(ARGS)
	$(BIN)/python -m bench.query $(ARGS)
	$(BIN)/python -m bench.steps $(ARGS)
	$(BIN)/python -m bench.mqtt $(ARGS)
	$(BIN)/python -m bench.pipeline $(ARGS)
	$(BIN)/python -m bench.blocks $(ARGS)
	$(BIN)/python -m bench.keyspace $(ARGS)
	$(BIN)/python -m bench.devices $(ARGS)

storm: setup ## Let 5,000 devices come back at once, and see what live reports notice (ARGS=--quick)
	$(BIN)/python -m bench.storm $(ARGS)

neighbour: setup ## Let one tenant send ten times what it may, and see what another notices (ARGS=--quick)
	$(BIN)/python -m bench.neighbour $(ARGS)

backup-drill: setup ## Back up under load with N reports stored, kill it half-way, restore elsewhere, compare every value
	env WIDEROW_DRILL_REPORTS=$(or $(N),200000) $(BIN)/python -m pytest -s tests/system/test_backup_drill.py $(ARGS)

clock: setup ## Set the clock ahead and back, by 90 s to 10 years, at a start and while running, with kills; compare every answer
	env WIDEROW_CLOCK=all $(BIN)/python -m pytest tests/system/test_clock_story.py $(ARGS)

crash: setup ## Kill the server N times and look for lost or invented reports
	$(BIN)/python -m tests.system.crash --cycles $(or $(N),100) $(ARGS)

foul: setup ## Damage a store N times in table files, N in its log and N/4 files whole, and look for silent losses
	$(BIN)/python -m tests.system.foul --tables $(or $(N),200) --logs $(or $(N),200) --files $(shell expr $(or $(N),200) / 4) $(ARGS)

crash-rollups: setup ## Kill what rolls N times, at named points, and verify
	$(BIN)/python -m tests.system.rollup_kills --cycles $(or $(N),50) $(ARGS)

crash-pipeline: setup real-servers ## Kill gateways and workers N times on the way from MQTT to a store (ARGS='--store bigtable')
	$(BIN)/python -m tests.system.pipeline_kills --kills $(or $(N),100) $(ARGS)

frozen: setup real-servers ## Let the store stand still for N seconds, and see that memory stays flat and nothing is lost
	env WIDEROW_FROZEN_S=$(or $(N),30) $(BIN)/python -m pytest tests/system/test_store_frozen.py tests/system/test_pipeline.py -k 'frozen or stands_still' $(ARGS)

mad-sensor: setup real-servers ## Let one device among 10,000 send 1,000 reports a second, on every engine
	env WIDEROW_HOT_FULL=1 $(BIN)/python -m pytest tests/system/test_hot.py $(ARGS)

fuzz: setup ## Feed N hostile inputs to each decoder
	$(BIN)/python -m tests.fuzz.run --count $(or $(N),1000000) $(ARGS)

dist: setup assets ## Build the wheel, install it into an empty environment and run it there
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation
	$(BIN)/python tools/try_wheel.py dist/*.whl

lock: $(VENV)/.dev ## Renew requirements/*.lock from pyproject.toml
	$(INSTALL) uv
	sh tools/lock.sh $(BIN)/uv

clean: ## Remove what the other targets made, .venv excepted
	rm -rf $(CACHES)
	find src tests bench tools -type d -name __pycache__ -prune -exec rm -rf {} +
	@echo "removed: $(CACHES) and every __pycache__ (the compiled kernels are there)"
	@echo "kept: $(VENV), $(DATA) and $(FETCHED) (fetched servers); remove them yourself if you mean to"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is not Python 3.11 or newer: install one, or name it with PYTHON="; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Only what is needed to run: half the time of a whole set-up. The package is found through PYTHONPATH.
$(VENV)/.run: requirements/run.lock | $(VENV)/bin/python
	$(INSTALL) --require-hashes -r $<
	touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | $(VENV)/.run
	$(INSTALL) --require-hashes -r $<
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(ASSETS): tools/assets/package-lock.json requirements/assets.lock | $(VENV)/.run
	$(INSTALL) --require-hashes -r requirements/assets.lock
	$(BIN)/python tools/assets.py
	@touch $@

# The kernels are compiled once, and again when their sources change: no request and no test waits for a compiler.
$(VENV)/.warm: $(SOURCES) | $(VENV)/.run
	env PYTHONPATH=src $(BIN)/python -m widerow.warm
	touch $@
