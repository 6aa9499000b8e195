# Two commands for a newcomer: `make demo` and `make test`. Both make the virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Miniature models are quickest on one thread, and threads that wait must not take the processor from other processes.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/pytest -q -n auto
FAST := not process and not gpu and not real_data and not trains and not slow

.PHONY: demo test check test-rounding lint clean

demo: $(VENV)/.core
	$(BIN)/maqee demo --out runs/demo

test: $(VENV)/.dev lint
	$(PYTEST)

# What to run while working: lint and the fast tests.
check: $(VENV)/.dev lint
	$(PYTEST) -m "$(FAST)"

# The tests that train or search a model, with other instructions that round differently: none may depend on that.
test-rounding: $(VENV)/.dev
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE $(PYTEST) -m "trains and not stops"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs/demo
