# Everything runs in its own virtual environment, with the versions of constraints.txt.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   ?= runs/demo
PYTHONS ?= python3.10 python3.11 python3.12 python3.13

# Planetoid data outside the package, where a checkout has it beside it.
ifneq ($(wildcard ../shared/data/planetoid),)
export ACEGLT_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test coverage check docs release campaign campaign-gpu pythons bench clean

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# What a user needs; each further stamp adds to the same environment what its commands need.
$(VENV)/.user: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("aceglt needs Python 3.10 or newer, this is " + sys.version) if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[fast]'
	@touch $@

$(VENV)/.installed: $(VENV)/.user
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.release: $(VENV)/.installed
	$(PIP) -e '.[release]'
	@touch $@

demo: $(VENV)/.user  ## a quick search on the embedded graph
	$(BIN)/aceglt search --preset quick --out $(DEMO)

# By module, so that its fixtures and caches are made once, in the order of tests/conftest.py; with bytecode, which
# workers and the processes that they start share.
SUITE := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder

test: $(VENV)/.installed  ## the test suite
	$(SUITE)

coverage: $(VENV)/.installed  ## the test suite with a report of the lines it reaches, in htmlcov/
	$(SUITE) --cov --cov-report=html --cov-report=term:skip-covered

check: $(VENV)/.installed  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the documentation, into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release: $(VENV)/.release  ## build both archives, check them, install each in a clean environment and search with it
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m pytest -m slow tests/test_package.py

# All at once, on the cores there are; what passes is written into the page, with the commit.
campaign: $(VENV)/.installed  ## kills, faults and fuzzed inputs for most of an hour; writes their table into the docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n auto --dist worksteal --table docs/science/reliability.md \
		tests/fuzz tests/test_kills.py tests/test_faults.py tests/training/test_memory.py

campaign-gpu: $(VENV)/.installed  ## its part for a GPU
	$(BIN)/python -m pytest -m gpu --table docs/science/reliability.md \
		tests/training/test_determinism.py tests/training/test_memory.py tests/tickets/test_evaluation.py

# E.g. make pythons PYTHONS="$$HOME/.pyenv/versions/3.1[023]*/bin/python"
pythons:  ## the test suite with each of several interpreters, in environments of their own
	for python in $(PYTHONS); do \
		$(MAKE) test PYTHON=$$python VENV=.venvs/$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1; \
	done

bench: $(VENV)/.installed  ## time and memory of training on this machine
	$(BIN)/python -m benchmarks --json benchmarks/cpu.json --plots docs/science/performance

clean:
	rm -rf $(VENV) .venvs runs site dist htmlcov .coverage .pytest_cache .mypy_cache .ruff_cache
