# Works on a fresh machine with Python 3.10+, make, gcc and pip: every target makes what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ENGINES := .venv-engines
PEERS := .venv-peers
SITE := import sysconfig; print(sysconfig.get_path('purelib'))

.PHONY: axe demo test test-long test-corpus test-slow test-oldest lint unit null-gpu engines peers test-engines test-cuda test-gpu bench docs pictures check-package clean

demo: $(READY)
	$(BIN)/memguard demo

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow and not long"

test-long: $(READY) # the longer half of the tests: examples, every rule's and page's programs, several processes
	$(BIN)/python -m pytest -n 2 -m "long and not slow"

test-corpus: $(READY) # the corpus on the virtual device, against tests/corpus/golden.tsv; MINUTES=15 for a part of it
	$(BIN)/python -m tests.corpus --golden -j 2 --device virtual $(if $(MINUTES),--minutes $(MINUTES))

test-slow: $(READY) # what takes longer: the corpus once more on the plain CPU, forecasts of large steps
	$(BIN)/python -m pytest -n 2 -m slow
	$(BIN)/python -m tests.corpus --golden -j 2 --device cpu

null-gpu: $(READY)
	$(BIN)/python -m tests.nullgpu.setup

engines: $(ENGINES)/.ready

$(ENGINES)/.ready: $(READY) # the development's packages, and Ray, TRL and DeepSpeed beside them
	[ -x $(ENGINES)/bin/python ] || $(BIN)/python -m venv $(ENGINES)
	$(BIN)/python -c "$(SITE)" > "$$($(ENGINES)/bin/python -c "$(SITE)")/development.pth"
	$(ENGINES)/bin/python -m pip install -q -c constraints.txt 'ray[train]' trl setuptools wheel ninja
	DS_BUILD_OPS=0 $(ENGINES)/bin/python -m pip install -q -c constraints.txt --no-build-isolation deepspeed
	touch $@

peers: $(READY) # other public tools, in an environment of their own: $(PEERS)/bin/python -m tests.corpus --peer stormlog
	[ -x $(PEERS)/bin/python ] || $(BIN)/python -m venv $(PEERS)
	$(BIN)/python -c "$(SITE)" > "$$($(PEERS)/bin/python -c "$(SITE)")/development.pth"
	$(PEERS)/bin/python -m pip install -q -c constraints.txt stormlog traceml-ai

test-engines: engines # launchers and engines as users start them: torchrun, Accelerate, DeepSpeed, Ray Train
	$(ENGINES)/bin/python -m pytest -n 0 tests/engines

test-oldest: # the core of the suite with the oldest packages that are accepted; PYTHON=python3.10 make test-oldest
	[ -x .venv-oldest/bin/python ] || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install -q -r tests/oldest.txt pytest pytest-xdist hypothesis scikit-learn
	.venv-oldest/bin/python -m pip install -q --no-deps -e .
	.venv-oldest/bin/python -m pytest -n 2 -m "not slow" -o filterwarnings=default tests/test_options.py \
		tests/test_recorder.py tests/test_recording.py tests/test_units.py tests/backends tests/guards tests/sinks \
		tests/report tests/rules tests/source tests/evidence tests/postmortem tests/forecast/test_old_torch.py \
		tests/integrations/test_torch.py tests/integrations/test_lightning.py tests/integrations/loop/test_inference.py \
		tests/integrations/test_unchanged.py tests/chaos/test_hostile_programs.py tests/chaos/test_guards_come_and_go.py

test-cuda: null-gpu
	$(BIN)/python -m tests.nullgpu.run --total 24GiB --devices 2 -- python -m pytest tests/cuda -m cuda

test-gpu: $(READY) # on a machine with a GPU; what takes the whole card runs alone, after the rest
	$(BIN)/python -m pytest tests/gpu tests/cuda -m "gpu or cuda" -n 8 --ignore tests/gpu/alone \
		--deselect tests/cuda/test_oom.py::test_eight_causes
	$(BIN)/python -m pytest tests/gpu/alone -m gpu

check-package: $(READY) # the built package in fresh environments, alone and with each extra; twine reads it
	$(BIN)/python tools/check_package.py

bench: $(READY)
	$(BIN)/python -m tests.bench

docs: $(READY) # the site, in site/; a warning fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

axe: # the checker of tests/browser/test_accessibility.py, for development alone
	npm install --no-save --no-package-lock --prefix tests/browser axe-core@4.14.1

pictures: $(READY) # the README's two pictures, made of a run of the demo; needs a chromium
	$(BIN)/python tools/pictures.py

$(READY): pyproject.toml constraints.txt
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-oldest $(ENGINES) $(PEERS) .nullgpu build dist site *.egg-info
