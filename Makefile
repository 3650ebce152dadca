# Works on a fresh machine with Python 3.10+, make, gcc and pip: every target makes what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint unit null-gpu test-cuda test-gpu bench docs clean

demo: $(READY)
	$(BIN)/memguard demo

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(READY) # what takes longer: the corpus once more on the plain CPU, forecasts of large steps
	$(BIN)/python -m pytest -n 2 -m slow

null-gpu: $(READY)
	$(BIN)/python -m tests.nullgpu.setup

test-cuda: null-gpu
	$(BIN)/python -m tests.nullgpu.run --total 24GiB --devices 2 -- python -m pytest tests/cuda -m cuda

test-gpu: $(READY)
	$(BIN)/python -m pytest tests/gpu -m gpu

bench: $(READY)
	$(BIN)/python -m tests.bench

$(READY): pyproject.toml constraints.txt
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .nullgpu build dist *.egg-info
