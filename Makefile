# make demo   install, then run the main job on embedded data
# make test   install, lint and run the tests; at most five minutes on two cores once installed
# make test-all    every test, the slow ones and the build of the documentation as well
# make test-wheel  build wheel and source distribution, install each into a new environment, test there
# make docs   build the documentation into docs/_build/html
# make bench  all benchmarks, most of an hour
# make test-oldest  every test with the oldest dependencies that pyproject.toml allows
# make mutation     change the code in thousands of ways, for days; do tests notice?
# make fuzz         random bytes into everything that reads a file, new examples for every property
# make audit        known vulnerabilities of the dependencies
# make release-check  everything before the upload of a release; links: those that lead elsewhere
# make follow       the functions that one row goes through, from fit to predict, with their lines
# make new-baseline NAME=Foo   a learner, its estimator and its tests, from a template that passes
# make new-metric NAME=Foo     a kind of fitted metric and its tests, from a template that passes
# make judge        every solver to a certified gap, judged from the definitions; SOLVERS, DATASETS
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST_ARGS ?= -n 2
# A build of PyTorch to test with, such as torch==2.13.0; without one those tests are skipped.
TORCH ?=
# The tag of this commit, where release-check is to compare it with the version.
TAG ?=
# What new-baseline and new-metric make; what judge runs.
NAME ?=
SOLVERS ?= fista lbfgsb auto
DATASETS ?= digits
# The original files of the paper's data sets, where they are at hand (see docs/data.md).
export PLML_DATA ?= $(abspath $(wildcard ../shared/data))
# Two test processes on two cores: one thread each.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MPLBACKEND=Agg

.PHONY: demo test test-all test-wheel torch test-oldest lint format docs bench mutation fuzz audit \
        links release-check follow new-baseline new-metric judge clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[plots]"
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	@touch $@

demo: $(VENV)/demo.stamp
	$(BIN)/plml demo

test: lint
	$(TEST_ENV) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow and not wheel"

test-all: torch lint
	$(TEST_ENV) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not wheel"

test-wheel: $(VENV)/dev.stamp
	$(TEST_ENV) $(BIN)/python -m pytest -m wheel

torch: $(VENV)/dev.stamp
	$(if $(TORCH),$(BIN)/python -m pip install --quiet $(TORCH))

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell *.md docs examples src tests tools benchmarks results

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp
	rm -rf docs/generated
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

links: $(VENV)/dev.stamp
	$(BIN)/python -m sphinx -q -b linkcheck docs docs/_build/links

bench: $(VENV)/dev.stamp
	$(BIN)/plml bench
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/neighbors.py
	$(BIN)/python benchmarks/mnist.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/predict_vs_sklearn.py
	$(BIN)/python benchmarks/small.py
	$(BIN)/python benchmarks/memory.py

test-oldest:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet -e ".[dev]" -c constraints-oldest.txt
	$(TEST_ENV) $(VENV)-oldest/bin/python -m pytest $(PYTEST_ARGS) -m "not wheel"

# mutmut does not know pytest 9 yet.
mutation:
	$(PYTHON) -m venv $(VENV)-mutation
	$(VENV)-mutation/bin/python -m pip install --quiet -e ".[dev]" mutmut "pytest<9" $(TORCH)
	$(TEST_ENV) $(VENV)-mutation/bin/python -m mutmut run --max-children 2
	$(VENV)-mutation/bin/python -m mutmut results

fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet atheris
	for reader in parquet checkpoint skops schema idx csv \
	    encoding dialect numbers columns archive workbook; do \
	  $(BIN)/python fuzz/readers.py $$reader -atheris_runs=220000 -timeout=30 -rss_limit_mb=8000 || exit 1; done
	$(TEST_ENV) $(BIN)/python -m pytest $(PYTEST_ARGS) -m hypothesis --hypothesis-profile=new

audit: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/python -m pip_audit --skip-editable

release-check: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet twine
	$(BIN)/python tools/release_check.py --tag "$(TAG)"

follow: $(VENV)/demo.stamp
	$(BIN)/python tools/follow_a_row.py

new-baseline new-metric: $(VENV)/dev.stamp
	$(BIN)/python tools/new.py $(@:new-%=%) "$(NAME)"

judge: $(VENV)/demo.stamp
	$(BIN)/plml bench --datasets $(DATASETS) --solvers $(SOLVERS) --regularizations 1

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
