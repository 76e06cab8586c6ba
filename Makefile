# Two commands matter: `make demo` and `make test`. Both set up .venv on their first run and repeat no finished work.
TESTS  :=
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
DEV    := $(VENV)/.dev
# Versions that CI has tested together; `make CONSTRAINTS=` takes the newest ones, as `pip install relabel-itr` does.
CONSTRAINTS := constraints.txt
PIP    := $(BIN)/pip install --quiet --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

# Modules are compiled when first imported, and kept, also where this is set, as in many containers: pip would compile
# all of torch, for longer than it takes to download it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check docs gpu dvc constraints clean

demo: $(DEMO)  ## build six labels of COCO's test captions and show how well each agrees with people
	@$(BIN)/relabel run

test: $(DEV) check  ## lint, types, tests; `make test TESTS='-m ""'` runs the slow ones as well
	$(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(TESTS)

check: $(DEV)
	$(BIN)/pre-commit run --all-files

docs: $(DEV)  ## the reference, docs/api.md and docs/reference.md, from the code, and the site, in site/
	$(BIN)/python docs_reference.py
	$(BIN)/mkdocs build --strict

gpu: $(DEV)  ## on a machine with a CUDA GPU: its tests, then a table of the work that it does
	$(BIN)/pytest -m gpu
	$(BIN)/python benchmarks/gpu.py

dvc: $(DEV)  ## labels of all methods, searched, served and judged, through DVC's cache
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/dvc repro

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml Makefile $(CONSTRAINTS) | $(BIN)/python
	$(PIP) --editable '.[pipeline,cpu,offline,java,tune]'
	@touch $@

$(DEV): pyproject.toml Makefile $(CONSTRAINTS) | $(BIN)/python
	$(PIP) --editable '.[pipeline,cpu,offline,java,spice,tune,dvc,docs,dev]'
	@touch $(DEMO) $@

constraints:  ## write the newest versions into constraints.txt, from a new environment; torch differs by platform
	rm -rf $(VENV)
	$(MAKE) CONSTRAINTS= $(DEV)
	$(BIN)/pip freeze --exclude-editable | grep -viE '^(torch|torchvision|triton|nvidia-.*|cuda-.*)==' > constraints.txt

clean:  ## everything but fetched data
	rm -rf $(VENV) labels
