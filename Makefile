# `make help` lists the targets. `make demo` and `make test` install what they need.
VENV ?= .venv
FLOOR ?= .venv-floor
NEWEST ?= .venv-newest
TORCH_TESTS = $(addprefix tests/,model optim training checkpoint lab/bench)
PYTHON ?= python3
WHEELS_FOR ?= 3.12
BIN = $(VENV)/bin
SOURCES = benchmarks compliance Dockerfile pyproject.toml constraints.txt run_and_time.sh
SCRIPTS = run_and_time.sh .ci/run $(wildcard benchmarks/bert/*.s* benchmarks/bert/launch/*.s*) $(wildcard tests/*/*.sh)
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
# pip would compile on one core only. Some packages contain files for a newer Python, which can't be compiled here.
COMPILE = $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

.PHONY: help demo test test-faults test-track test-floor test-newest test-all image image-test bench docs setup wheels lint format types clean

demo: $(VENV)/.run-ready ## prepare data, train to the target, judge the log, and print a table of the run
	@echo "using $(VENV)"
	$(BIN)/bertbench data prepare --system cpu_demo
	./run_and_time.sh cpu_demo
	$(BIN)/python -m compliance "$$(ls -t runs/cpu_demo/bert/result_*.txt | head -n 1)"
	$(BIN)/bertbench report runs/cpu_demo
	-@$(BIN)/bertbench fill-mask "The [MASK] of the function" # an extra: if it fails, the demo doesn't

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

test: $(VENV)/.dev-ready ## run the fast tests, in a few minutes
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not faults"

test-faults: $(VENV)/.dev-ready ## run the fault tests, in which runs lose ranks, disks or data
	$(BIN)/python -m pytest -m faults

test-track: $(VENV)/.dev-ready ## install the trackers, and test with them
	$(INSTALL) --editable ".[tensorboard,mlflow,wandb]"
	@$(COMPILE)
	$(BIN)/python -m pytest tests/runs/test_trackers.py

test-floor: $(FLOOR)/.ready ## test with the oldest supported torch, in its CUDA build; 6 GB
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(FLOOR)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not faults" $(TORCH_TESTS)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(FLOOR)/bin/python -m pytest -m "slow and not faults" $(TORCH_TESTS)

test-newest: $(NEWEST)/.ready ## test with the newest torch that pip finds, even if pyproject.toml doesn't allow it yet; 6 GB
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(NEWEST)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not faults" $(TORCH_TESTS)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(NEWEST)/bin/python -m pytest -m "slow and not faults" $(TORCH_TESTS)

test-all: $(VENV)/.dev-ready ## run every test, with Slurm if it can be installed; the slow ones run one at a time
	tests/slurm/install.sh
	$(MAKE) test
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -m "slow or faults"
	$(MAKE) test-floor

# A report or a job's output in the clone doesn't change the sources, so it doesn't make the image dirty.
image: ## build the Docker image on NVIDIA's PyTorch container; its runs record the commit
	docker build --tag bertbench --build-arg COMMIT="$$(git rev-parse HEAD)$$(test -z "$$(git status --porcelain $(SOURCES))" || echo -dirty)" .

image-test: $(VENV)/.dev-ready ## build the image without root, and run it with podman and in a Slurm job; minutes, 5 GB
	tests/image/install.sh
	tests/slurm/install.sh
	BERTBENCH_IMAGE=$${BERTBENCH_IMAGE:-demo} $(BIN)/python -m pytest tests/image/test_image.py

bench: $(VENV)/.dev-ready ## compare a small training step with transformers' BERT
	$(BIN)/bertbench lab step --rounds 2 --no-compile

docs: $(VENV)/.dev-ready ## build the documentation site in site/, and check its links
	$(BIN)/mkdocs build --strict --quiet

setup: $(VENV)/.dev-ready ## install everything for development

wheels: $(VENV)/.run-ready ## download the packages that a machine without a network lacks (CONTRIBUTING.md)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --constraint constraints.txt --dest $@ --no-deps \
	  --only-binary :all: --python-version $(WHEELS_FOR) --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
	  pydantic pydantic-core annotated-types typing-inspection mlperf-logging google-crc32c argcomplete tokenizers \
	  nvidia-ml-py tqdm safetensors pyyaml

lint: $(VENV)/.dev-ready ## check style, imports between packages, shell scripts, and the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/shellcheck $(SCRIPTS)
	$(BIN)/hadolint Dockerfile

format: $(VENV)/.dev-ready ## fix what lint can fix automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev-ready ## check types
	$(BIN)/mypy

clean: ## remove the virtual environments, but not data/ and runs/
	rm -rf $(VENV) $(FLOOR) $(NEWEST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python %s, bertbench needs 3.11 or newer; choose another, for example: make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# This torch requires Triton 3.6, whose interpreter doesn't work with numpy 2.4.
$(FLOOR)/.ready: pyproject.toml constraints.txt
	@echo "installing the oldest supported torch into $(FLOOR); this takes two minutes or more"
	$(PYTHON) -m venv --clear $(FLOOR)
	sed 's/^torch==.*/torch==2.11.0/; /^triton==/d; s/^numpy==.*/numpy<2.4/' constraints.txt >$(FLOOR)/constraints.txt
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(FLOOR)/constraints.txt \
	  --editable . pytest pytest-xdist
	touch $@

# As for the image: first torch, which pyproject.toml may not allow yet, then the other packages.
$(NEWEST)/.ready: pyproject.toml constraints.txt
	@echo "installing the newest torch that pip finds into $(NEWEST); this takes two minutes or more"
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check torch
	$(NEWEST)/bin/python benchmarks/bert/launch/requirements.py . $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(NEWEST)/constraints.txt \
	  --requirement $(NEWEST)/requirements.txt pytest pytest-xdist
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Without this file, bertbench may be there already, installed by hand (docs/install.md).
$(VENV)/.run-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@if test -x $(BIN)/bertbench && ! test -e $@; then \
	  echo "bertbench is in $(VENV) already"; \
	else \
	  echo "installing what a run needs into $(VENV); this takes about a minute"; \
	  $(INSTALL) --editable . && { $(COMPILE); }; \
	fi
	touch $@

$(VENV)/.dev-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing everything for development into $(VENV); this takes a minute or two"
	$(INSTALL) --editable ".[dev,docs,peers,study,kernels]"
	@$(COMPILE)
	touch $@ $(VENV)/.run-ready
