# Every command sets up what it needs. `make demo` and `make test` are the first to try.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo check test test-all reliability format clean

demo: $(VENV)/.core
	OMP_NUM_THREADS=2 $(BIN)/torchcaps demo

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# one thread per process (OMP_NUM_THREADS above), and a free worker takes tests from the other
test: check
	$(BIN)/pytest -n 2 --dist worksteal -q -m "not slow"

test-all: check
	$(BIN)/pytest -n 2 --dist worksteal -q

reliability: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m reliability

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "torchcaps needs Python 3.11 or newer; name one with PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing PyTorch and torchcaps into $(VENV): minutes, the first time"
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing PyTorch and torchcaps into $(VENV): minutes, the first time"
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.core
