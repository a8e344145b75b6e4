# Two commands on a fresh machine (Python 3.11 to 3.13, gcc, make): `make ask` and `make test`.
# Each sets up what it needs in .venv, from pyproject.toml and constraints.txt, and only when those change.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SETUP := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help ask quick test lint docs measures clean

help:
	@echo "make ask       set up the core and answer a question about a sample video"
	@echo "make quick     lint and the fast tests, in under two minutes: no server, no training, no evaluation"
	@echo "make test      lint, the documentation site and all tests; sets up everything they need"
	@echo "make lint      ruff and mypy"
	@echo "make docs      build the documentation site into site/"
	@echo "make measures  measure what the engine itself costs"
	@echo "make clean     remove what was built, .venv included"

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

docs: .venv/test.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# What needs no SGLang server, no training process and no evaluation of the small model: the engine without its
# backends, scoring, training data, rewards, the sample world, recipes and the architecture.
QUICK := tests/paravt_infer tests/lmms_tasks/scoring tests/training/data tests/training/rewards tests/training/world \
	tests/training/test_recipe.py tests/test_architecture.py \
	--ignore=tests/paravt_infer/backends --ignore=tests/paravt_infer/video/test_faulty_files.py -k "not sglang"

quick: lint
	@$(BIN)/python -m pytest $(QUICK)

test: lint docs
	@$(BIN)/python -m pytest

measures: .venv/test.stamp
	@$(BIN)/python -m measures.engine

clean:
	rm -rf .venv .cache build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
