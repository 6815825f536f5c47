# Everything runs in its own virtual environment, with the versions of constraints.txt.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   ?= runs/demo

# Planetoid data outside the package, where a checkout has it beside it.
ifneq ($(wildcard ../shared/data/planetoid),)
export ACEGLT_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test check bench clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("aceglt needs Python 3.10 or newer, this is " + sys.version) if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## a quick search on the embedded graph
	$(BIN)/aceglt search --preset quick --out $(DEMO)

# By module, so that its fixtures and caches are made once.
test: $(VENV)/.installed  ## the test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadscope

check: $(VENV)/.installed  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed  ## time and memory of training on this machine
	$(BIN)/python -m benchmarks --json benchmarks/cpu.json --plots docs/performance

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache
