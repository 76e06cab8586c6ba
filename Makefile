# The main commands are `make demo` and `make test`. Both set up .venv on the first run, and skip finished work.
TESTS  :=
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
DEV    := $(VENV)/.dev
# Versions tested together in CI. `make CONSTRAINTS=` installs the latest ones, as `pip install relabel-itr` does.
CONSTRAINTS := constraints.txt
PIP    := $(BIN)/pip install --quiet --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

# Modules are compiled on first import and cached. Many containers disable this cache with the variable below. Compiling
# with pip instead would take longer than downloading torch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check docs gpu dvc constraints clean

demo: $(DEMO)  ## build six labels for COCO's test captions, and show their agreement with human judgements
	@$(BIN)/relabel run

test: $(DEV) check  ## lint, type checks and tests; `make test TESTS='-m ""'` includes the slow tests
	$(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(TESTS)

check: $(DEV)
	$(BIN)/pre-commit run --all-files

docs: $(DEV)  ## generate docs/api.md and docs/reference.md from the code, and build the site in site/
	$(BIN)/python docs_reference.py
	$(BIN)/mkdocs build --strict

gpu: $(DEV)  ## run the GPU tests and the GPU benchmark; needs a CUDA GPU
	$(BIN)/pytest -m gpu
	$(BIN)/python benchmarks/gpu.py

dvc: $(DEV)  ## build, search, export and evaluate all labels with DVC
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/dvc repro

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml Makefile $(CONSTRAINTS) | $(BIN)/python
	$(PIP) --editable '.[pipeline,cpu,offline,java,tune]'
	@touch $@

$(DEV): pyproject.toml Makefile $(CONSTRAINTS) | $(BIN)/python
	$(PIP) --editable '.[pipeline,cpu,offline,java,spice,tune,dvc,docs,dev]'
	@touch $(DEMO) $@

constraints:  ## write the latest versions to constraints.txt, from a new environment, without torch (platform-specific)
	rm -rf $(VENV)
	$(MAKE) CONSTRAINTS= $(DEV)
	$(BIN)/pip freeze --exclude-editable | grep -viE '^(torch|torchvision|triton|nvidia-.*|cuda-.*)==' > constraints.txt

clean:  ## delete everything except fetched data
	rm -rf $(VENV) labels
