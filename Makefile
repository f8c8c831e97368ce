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
.PHONY: help setup lint test test-all test-kernels test-jax demo bench docs

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

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

test-all: $(INSTALLED) ## Run lint and every test, and those that meet JAX under the version before.
	@status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	$(PYTEST) $(ARGS) || status=1; \
	$(MAKE) --no-print-directory test-jax || status=1; \
	exit $$status

# The version of JAX before the newest that works; `python -m bench installs` makes a first plan under others.
JAX ?= 0.9.2
# The tests that meet JAX's interfaces.
JAX_TESTS := tests/test_jit.py tests/test_jit_as_jax.py tests/test_autosharding.py tests/test_api.py tests/frontends tests/engines/jax tests/emit tests/hlo

test-jax: ## Run the tests that meet JAX under another version, e.g. JAX=0.8.0.
	@$(MAKE) --no-print-directory setup VENV=.venv-jax-$(JAX)
	@.venv-jax-$(JAX)/bin/python -m pip install --quiet --disable-pip-version-check jax==$(JAX) jaxlib==$(JAX)
	@.venv-jax-$(JAX)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(JAX_TESTS) $(ARGS)

# Each multiplies matrices in an order of its own, and so do two threads: what is tested holds for every rounding.
KERNELS := SkylakeX Haswell Sandybridge Nehalem
# The tests whose NumPy code calls BLAS.
BLAS_TESTS := $(addprefix tests/, planner/test_optimization.py planner/test_bodies.py planner/test_merged_dimensions.py \
	planner/test_jax_programs.py planner/layers planner/repricing/test_overlapped.py memory/strips \
	spmd/test_partly_manual.py spmd/test_sharding_groups.py emit/test_repeated_collectives.py engines/jax/test_callable.py \
	engines/jax/test_verification.py engines/workspace/test_oracle.py frontends/jax ops/test_jax_programs.py \
	ops/algebra ops/test_evaluate.py prove/test_residues.py plan/test_retargeting.py rewrites shardy/local \
	testing/kernel_interpreter test_api.py)

test-kernels: $(INSTALLED) ## Run the tests that call BLAS under several of its kernels, with one thread and two.
	@status=0; \
	for kernel in $(KERNELS); do for threads in 1 2; do \
		echo "OPENBLAS_CORETYPE=$$kernel OPENBLAS_NUM_THREADS=$$threads"; \
		OPENBLAS_CORETYPE=$$kernel OPENBLAS_NUM_THREADS=$$threads $(PYTEST) -m "not slow" $(BLAS_TESTS) $(ARGS) || status=1; \
	done; done; \
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
