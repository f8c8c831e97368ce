# The Python that creates the virtual environment, e.g. `make test PYTHON=python3.12`.
PYTHON ?= python3
VENV ?= .venv
# Test processes at a time.
WORKERS ?= 2
# Passed on to pytest, the demo or the benchmarks, e.g. `make test ARGS="-k halo"`.
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup lint test test-all demo bench docs

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(INSTALLED) ## Create .venv and install the project into it.

lint: $(INSTALLED) ## Run ruff and mypy, and hold the imports between rooms.
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/mypy || status=1; \
	$(BIN)/lint-imports || status=1; \
	exit $$status

# The tests run last, and even when lint fails, so that pytest's summary closes the log.
test: $(INSTALLED) ## Run lint and every test that is not marked slow.
	@status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	$(PYTEST) -m "not slow" $(ARGS) || status=1; \
	exit $$status

test-all: $(INSTALLED) ## Run lint and every test.
	@status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	$(PYTEST) $(ARGS) || status=1; \
	exit $$status

demo: $(INSTALLED) ## Run examples/demo.py.
	@$(BIN)/python examples/demo.py $(ARGS)

bench: $(INSTALLED) ## Run the benchmarks.
	@$(BIN)/python -m bench $(ARGS)

docs: $(INSTALLED) ## Build the manual into docs/_build, with warnings as errors.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "docs/_build/index.html"

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "eggshard needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# Installs again only when pyproject.toml changed.
$(INSTALLED): pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "Installing into $(VENV); the first time takes some minutes."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
