# Two commands do everything on a fresh machine: `make demo` and `make test`. Neither needs root.

# `make test PYTHON=python3.12` uses that interpreter alone. Otherwise this is the first Python that can run the scripts,
# and they find the newest and the oldest one themselves.
ifneq ($(origin PYTHON),undefined)
export ONLY_THIS_PYTHON := yes
endif
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 $(HOME)/.pyenv/versions/3.1[1-9]*/bin/python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# Compiling the package at the start of every child process would double the time the tests take.
unexport PYTHONDONTWRITEBYTECODE
# Where the programs of an environment are.
BIN := $(if $(filter Windows_NT,$(OS)),.venv/Scripts,.venv/bin)
# Half of the time tests wait for processes and clocks: three keep two cores busy.
AT_ONCE := 3
# What stays within one process: for people at work, and for the oldest Python (whole processes behave alike on every one).
QUICK := not process and not peer and not browser and not slow

.DEFAULT_GOAL := help
.PHONY: help setup demo check fix test test-quick test-long coverage bench fuzz dist audit sbom pin clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## build .venv and the environments of the foreign peers (under a second when nothing changed)
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it with `make PYTHON=…`)) scripts/set_up.py

demo: ## install the core alone and play with a running board
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it with `make PYTHON=…`)) scripts/demo.py

check: setup ## ruff, mypy strict, import layers
	@$(BIN)/python scripts/check.py

test: check ## everything that must be green: checks, tests, the oldest Python, the built wheel (a part: ARGS=tests/gateway)
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist worksteal -m "not slow" $(ARGS)
ifndef ARGS
	@if [ -x .venv-oldest/bin/python ]; then set -x; .venv-oldest/bin/python -m pytest -n $(AT_ONCE) -m "$(QUICK)"; fi
	@$(BIN)/python scripts/try_wheel.py
endif

test-quick: setup ## the tests that stay within one process, in about a minute
	$(BIN)/python -m pytest -n $(AT_ONCE) -q -m "$(QUICK)" $(ARGS)

coverage: setup ## run the tests with branch coverage and print what they leave out
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(AT_ONCE) -q -m "not slow" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-long: setup ## the tests that take minutes, and new cases for the property tests
	$(BIN)/python -m pytest -n 2 -m slow
	PEGBOARD_EXPLORE=1 $(BIN)/python -m pytest -n 2 tests/tools tests/schema tests/binding tests/repair tests/protocol tests/execution tests/hooks tests/asking tests/tasks tests/stores

bench: setup ## measure against the peers (a minute of it: make bench ARGS=--quick)
	$(BIN)/python bench/run.py $(ARGS)

fuzz: ## look for inputs that break a reader, for 10 s each (longer, one: make fuzz ARGS="--seconds 60 sse")
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it with `make PYTHON=…`)) scripts/run_fuzz.py $(ARGS)

fix: setup ## format, and repair what ruff can
	$(BIN)/ruff check --fix --quiet .; $(BIN)/ruff format .

dist: setup ## build the sdist and the wheel into dist/
	$(BIN)/python -m hatchling build

audit: ## look the pins up among the known vulnerabilities (needs the network)
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it with `make PYTHON=…`)) scripts/audit.py

sbom: ## write dist/pegboard-….cdx.json: what is needed at run time, as CycloneDX
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it with `make PYTHON=…`)) scripts/sbom.py

pin: ## choose the newest versions anew (constraints.txt, tests/peers/mcp1.txt, scripts/uv.txt)
	@$(PYTHON) scripts/pin.py

clean: ## remove every environment and cache
	rm -rf .venv .venv-oldest .venv-demo .venv-fuzz .venv-audit .venv-sbom .fuzz .uv .peers tests/peers/node/node_modules build dist \
		.mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.*
