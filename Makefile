# The main commands are `make demo` and `make test`. Both set up .venv on the first run, and skip finished work.
TESTS  :=
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
DEV    := $(VENV)/.dev
# `make EDITABLE=`, with a new environment, installs the wheel of this checkout: the tests run what a release contains.
EDITABLE := --editable
# Versions tested together in CI. `make CONSTRAINTS=` installs the latest ones, as `pip install relabel-itr` does.
CONSTRAINTS := $(VENV)/constraints.txt
PIP    := pip install --quiet --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
PYTEST := $(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Modules are compiled on first import and cached. Many containers disable this cache with the variable below. Compiling
# with pip instead would take longer than downloading torch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check coverage test-train dist wheel-test docker docs gpu dvc torch-cpu lock clean

demo: $(DEMO)  ## build six labels for COCO's test captions, and show their agreement with human judgements
	@$(BIN)/relabel run

test: $(DEV) check  ## lint, type checks and tests; `make test TESTS='-m ""'` includes the slow tests
	$(PYTEST) $(TESTS)

coverage: $(DEV)  ## the tests, and the share of lines and branches that they run; in CI, on the page of the run
	$(PYTEST) --cov --cov-report= $(TESTS)
	@printf 'Coverage of lines and branches: %s%%\n' "$$($(BIN)/coverage report --format=total)" \
		| tee -a $${GITHUB_STEP_SUMMARY:-/dev/null}

test-train: $(VENV)-train/.done  ## the tests of relabel_train that need only its extra, in their own environment
	$(VENV)-train/bin/python -m pytest tests/relabel_train $(TESTS)

dist: $(DEV)  ## what a release uploads: the source archive and, from it, the wheel, in dist/
	$(BIN)/uv lock --check
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

wheel-test: dist  ## the wheel of dist/, in new environments outside the checkout, and by uvx
	RELABEL_WHEEL="$$(ls $(CURDIR)/dist/*.whl)" $(BIN)/pytest tests/packaging/test_wheel.py -m slow $(TESTS)

docker: dist  ## the image of the wheel in dist/, and its first labels
	docker build --tag relabel .
	docker run --rm relabel --version
	rm -rf dist/docker && mkdir dist/docker && cp tests/packaging/captions.csv dist/docker
	docker run --rm --user "$$(id -u)" --volume "$(CURDIR)/dist/docker:/data" relabel run captions.csv --label sbert

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

# Without torch, whose builds differ by platform.
$(VENV)/constraints.txt: uv.lock | $(BIN)/python
	$(BIN)/pip install --quiet uv
	$(BIN)/uv export --quiet --frozen --all-extras --no-emit-project --no-hashes --no-annotate --no-header \
		| grep -vE '^(torch|torchvision|triton|nvidia-.*|cuda-.*)==' > $@

torch-cpu: | $(BIN)/python  ## before the others: the CPU build of torch, which pip then keeps
	$(BIN)/pip install --quiet torch --index-url https://download.pytorch.org/whl/cpu

$(DEMO): pyproject.toml Makefile $(CONSTRAINTS) | $(BIN)/python
	$(BIN)/$(PIP) $(EDITABLE) '.[pipeline,cpu,offline,java,tune]'
	@touch $@

$(DEV): pyproject.toml Makefile $(CONSTRAINTS) | $(BIN)/python
	$(BIN)/$(PIP) $(EDITABLE) '.[pipeline,cpu,offline,java,spice,tune,dvc,docs,dev]'
	@touch $(DEMO) $@

$(VENV)-train/.done: pyproject.toml Makefile $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)-train
	$(VENV)-train/bin/$(PIP) $(EDITABLE) '.[train,hub]' pytest pytest-timeout
	@touch $@

lock: $(DEV)  ## update uv.lock to the latest versions
	$(BIN)/uv lock --upgrade

clean:  ## delete everything except fetched data
	rm -rf $(VENV) $(VENV)-train dist labels
