# make demo   install, then run the main job on embedded data
# make test   install, lint and run every test
# make docs   build the documentation into docs/_build/html
# make bench  all benchmarks, most of an hour
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST_ARGS ?= -n 2
# A build of PyTorch to test with, such as torch==2.13.0; without one those tests are skipped.
TORCH ?=
# The original files of the paper's data sets, where they are at hand (see docs/data.md).
export PLML_DATA ?= $(abspath $(wildcard ../shared/data))
# Two test processes on two cores: one thread each.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MPLBACKEND=Agg

.PHONY: demo test lint format docs bench clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[plots]"
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[dev]" $(TORCH)
	@touch $@

demo: $(VENV)/demo.stamp
	$(BIN)/plml demo

test: lint
	$(TEST_ENV) $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/dev.stamp
	$(BIN)/plml bench
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/mnist.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/predict_vs_sklearn.py

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
