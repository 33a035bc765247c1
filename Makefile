# On a fresh machine, `make demo` and `make test` are all you need. Neither needs root.

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
# Tests spend half of their time waiting for processes and clocks: four at once keep two cores busy. Those within one
# process wait less.
AT_ONCE := 4
QUICK_AT_ONCE := 3
# The tests that stay within one process: for use during development, and for the oldest Python (separate processes behave the same on every version).
QUICK := not process and not peer and not browser and not slow
# The oldest Python runs what can differ between versions: neither texts nor cost ratios nor parsers of our own.
OLDEST := $(QUICK) and not same_on_every_python

SET_UP = $(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it: `make PYTHON=…`)) scripts/set_up.py

.DEFAULT_GOAL := help
.PHONY: help setup demo check fix test test-quick test-long coverage bench agents fuzz dist audit sbom pin clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## build .venv and the environments of the peers (under a second if nothing changed)
	@$(SET_UP)

demo: ## install only the core and start a demo gateway
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it: `make PYTHON=…`)) scripts/demo.py

check: setup ## run ruff, mypy and the import layers
	@$(BIN)/python scripts/check.py

test: ## run everything that must pass: checks, tests, the oldest Python, the built wheel (one part: ARGS=tests/gateway)
ifndef ARGS
	@$(SET_UP) python
# mypy keeps one core busy. The other one unpacks the npm packages and compiles what the tests import, which each of their
# processes would do again. The second set-up reports what went wrong in the first.
	@{ $(SET_UP) & $(BIN)/python -m compileall -q src; $(BIN)/python -m pytest --collect-only -qq; wait; } >/dev/null 2>&1 & \
		$(BIN)/python scripts/check.py && wait
	@$(SET_UP)
	@if [ -x .venv-oldest/bin/python ]; then .venv-oldest/bin/python -m pytest --collect-only -qq >/dev/null 2>&1 & fi
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist worksteal -m "not slow"
	@if [ -x .venv-oldest/bin/python ]; then set -x; \
		PEGBOARD_BRIEF=1 .venv-oldest/bin/python -m pytest -n $(QUICK_AT_ONCE) --dist worksteal -m "$(OLDEST)"; fi
	@$(BIN)/python scripts/try_wheel.py
else
	@$(SET_UP)
	@$(BIN)/python scripts/check.py
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist worksteal -m "not slow" $(ARGS)
endif

test-quick: setup ## run the tests that stay within one process, in about a minute (one part in full: ARGS=tests/gateway)
	$(if $(ARGS),,PEGBOARD_BRIEF=1) $(BIN)/python -m pytest -n $(QUICK_AT_ONCE) --dist worksteal -q -m "$(QUICK)" $(ARGS)

coverage: setup ## run the tests and print the lines that they do not reach
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(AT_ONCE) --dist worksteal -q -m "not slow" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-long: setup ## run the tests that take minutes, and twenty times as many cases of the property tests
	$(BIN)/python -m pytest -n 2 -m slow
	PEGBOARD_EXPLORE=1 $(BIN)/python -m pytest -n 2 -m "(hypothesis or deeper) and not slow"

bench: setup ## measure Pegboard and its peers (in a few minutes: make bench ARGS=--quick)
	$(BIN)/python bench/run.py $(ARGS)

agents: setup ## run real agents with a scripted model and write docs/agents.md (one: make agents ARGS=codex)
	$(BIN)/python -m agent_bench $(ARGS)

fuzz: ## fuzz every reader of foreign input for 10 s (one, for longer: make fuzz ARGS="--seconds 60 sse")
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it: `make PYTHON=…`)) scripts/run_fuzz.py $(ARGS)

fix: setup ## format the code and apply the fixes of ruff
	$(BIN)/ruff check --fix --quiet .; $(BIN)/ruff format .

dist: setup ## build the sdist and the wheel into dist/
	$(BIN)/python -m hatchling build

audit: ## look up the pins in the database of known vulnerabilities (needs the network)
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it: `make PYTHON=…`)) scripts/audit.py

sbom: ## write dist/pegboard-….cdx.json, the CycloneDX bill of materials of the run-time dependencies
	@$(or $(PYTHON),$(error No Python 3.11 or newer found: install one, or name it: `make PYTHON=…`)) scripts/sbom.py

pin: ## update the pins to the newest versions (constraints.txt, tests/peers/mcp1.txt, scripts/uv.txt, agents)
	@$(PYTHON) scripts/pin.py

clean: ## remove every environment and cache
	rm -rf .venv .venv-oldest .venv-demo .venv-fuzz .venv-audit .venv-sbom .fuzz .uv .peers .agents tests/peers/node/node_modules agent_bench/drivers/*/node_modules build dist \
		.mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.*
