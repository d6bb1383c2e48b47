# Every command sets up what it needs. `make demo` and `make test` are the first to try.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
RUNTIME := docs/_runtime/node_modules/onnxruntime-web/dist

.PHONY: demo check test test-all reliability docs format clean

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

# the site, in docs/_build/html; any warning is an error; its home page has the explorer if npm could fetch the runtime
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html $$(test -d $(RUNTIME) && echo -t explorer) docs docs/_build/html

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache docs/_build docs/_vendor docs/_runtime docs/reference/generated

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

MATHJAX := mathjax-4.1.3.tgz
MATHJAX_SHA256 := b7109f516f3d842de62b95d653e35fa0976dc223706a2a77440e7f7723f0c54d

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	rm -rf docs/_vendor && mkdir -p docs/_vendor
	cd docs/_vendor && npm pack --silent mathjax@4.1.3 \
		&& echo "$(MATHJAX_SHA256)  $(MATHJAX)" | sha256sum --check --quiet \
		&& tar -xzf $(MATHJAX) && mv package mathjax && rm $(MATHJAX)
	-mkdir -p docs/_runtime && cp src/torchcaps/explorer/saved/package*.json docs/_runtime \
		&& cd docs/_runtime && npm ci --ignore-scripts --no-audit --no-fund --silent
	touch $@
