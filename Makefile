# Two commands on a fresh machine (Python 3.10 to 3.12, gcc, make): `make ask` and `make test`.
# Each sets up what it needs in .venv, from pyproject.toml and constraints.txt, and only when those change.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SETUP := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help ask test lint check bench clean

help:
	@echo "make ask    set up the core and answer a question about a sample video"
	@echo "make test   set up everything the tests need and run them"
	@echo "make bench  measure what the engine itself costs"

# The order of the two stamps matters: what the tests need contains the core.
.venv/core.stamp: $(SETUP)
	@echo "setting up .venv (the first time this takes a few minutes)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable .
	@touch $@

.venv/test.stamp: $(SETUP) tests/sglang_cpu/requirements.txt
	@echo "setting up .venv for the tests (the first time this takes a few minutes)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable '.[test]' --requirement tests/sglang_cpu/requirements.txt
	@$(PIP) --no-deps sglang==0.5.23
	@touch .venv/core.stamp $@

ask: .venv/core.stamp
	@$(BIN)/python -m paravt_cli.first_minute

lint: .venv/test.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

test: lint
	@$(BIN)/python -m pytest

bench: .venv/test.stamp
	@$(BIN)/python -m measures.engine

clean:
	rm -rf .venv .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
