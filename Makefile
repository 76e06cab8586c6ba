# Two commands matter: `make demo` and `make test`. Both set up .venv on their first run and repeat no finished work.
TESTS  :=
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
DEV    := $(VENV)/.dev
# `make EDITABLE=`, with a new environment, installs the wheel of this checkout: the tests run what a release contains.
EDITABLE := --editable
# Versions that CI has tested together; `make CONSTRAINTS=` takes the newest ones, as `pip install relabel-itr` does.
CONSTRAINTS := $(VENV)/constraints.txt
PIP    := pip install --quiet --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
PYTEST := $(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# Modules are compiled when first imported, and kept, also where this is set, as in many containers: pip would compile
# all of torch, for longer than it takes to download it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check coverage test-train dist wheel-test docker docs gpu dvc torch-cpu lock clean

demo: $(DEMO)  ## build six labels of COCO's test captions and show how well each agrees with people
	@$(BIN)/relabel run

test: $(DEV) check  ## lint, types, tests; `make test TESTS='-m ""'` runs the slow ones as well
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

lock: $(DEV)  ## write the newest versions into uv.lock
	$(BIN)/uv lock --upgrade

clean:  ## everything but fetched data
	rm -rf $(VENV) $(VENV)-train dist labels
