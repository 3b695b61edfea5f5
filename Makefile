# Each target is one line of intent. `make demo` and `make test` set up what they need.
VENV ?= .venv
FLOOR ?= .venv-floor
NEWEST ?= .venv-newest
TORCH_TESTS = $(addprefix tests/,model optim training checkpoint lab/bench)
PYTHON ?= python3
WHEELS_FOR ?= 3.12
BIN = $(VENV)/bin
SCRIPTS = run_and_time.sh .ci/run $(wildcard benchmarks/bert/*.s* benchmarks/bert/launch/*.s*) $(wildcard tests/*/*.sh)
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
# pip would compile on one processor. Packages hold some files for a newer Python, which fail here.
COMPILE = $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

.PHONY: help demo test test-faults test-track test-floor test-newest test-all image image-test bench docs release-check setup wheels lint format types clean

demo: $(VENV)/.run-ready ## prepare data, train to the target, check the log, print the table
	@echo "using $(VENV)"
	$(BIN)/bertbench data prepare --system cpu_demo
	./run_and_time.sh cpu_demo
	$(BIN)/python -m compliance "$$(ls -t runs/cpu_demo/bert/result_*.txt | head -n 1)"
	$(BIN)/bertbench report runs/cpu_demo
	-@$(BIN)/bertbench fill-mask "The [MASK] of the function" # a flourish: its failure fails no demo

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

test: $(VENV)/.dev-ready ## the tests that finish in minutes
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not faults"

test-faults: $(VENV)/.dev-ready ## runs that lose ranks, disks or data, from a seed
	$(BIN)/python -m pytest -m faults

test-track: $(VENV)/.dev-ready ## trackers and Prometheus' client, which it installs
	$(INSTALL) --editable ".[metrics,tensorboard,mlflow,wandb]"
	@$(COMPILE)
	$(BIN)/python -m pytest tests/report/test_alongside.py tests/report/test_trackers.py

test-floor: $(FLOOR)/.ready ## the oldest torch that we promise, built for CUDA as on a GPU machine; 6 GB
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(FLOOR)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not faults" $(TORCH_TESTS)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(FLOOR)/bin/python -m pytest -m "slow and not faults" $(TORCH_TESTS)

test-newest: $(NEWEST)/.ready ## the newest torch that pip finds, which pyproject.toml may not allow yet; 6 GB
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(NEWEST)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not faults" $(TORCH_TESTS)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(NEWEST)/bin/python -m pytest -m "slow and not faults" $(TORCH_TESTS)

test-all: $(VENV)/.dev-ready ## every test, Slurm's included where it is or can be installed; the slow ones alone, one at a time
	tests/slurm/install.sh
	$(MAKE) test
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -m "slow or faults"
	$(MAKE) test-floor

image: ## docker's image, on NVIDIA's PyTorch container; its runs record the commit
	docker build --tag bertbench --build-arg COMMIT="$$(git rev-parse HEAD)$$(test -z "$$(git status --porcelain)" || echo -dirty)" .

image-test: $(VENV)/.dev-ready ## the image built and run without root, by podman and in a Slurm job; minutes, 5 GB
	tests/image/install.sh
	tests/slurm/install.sh
	BERTBENCH_IMAGE=$${BERTBENCH_IMAGE:-demo} $(BIN)/python -m pytest tests/image/test_image.py

bench: $(VENV)/.dev-ready ## the training step beside transformers' BERT, at a small size
	$(BIN)/bertbench lab step --rounds 2 --no-compile

docs: $(VENV)/.dev-ready ## the site of all pages in site/, links checked
	$(BIN)/mkdocs build --strict --quiet

release-check: ## what stands in the way of a release: RELEASING.md
	$(PYTHON) docs/site/release.py

setup: $(VENV)/.dev-ready ## everything for development

wheels: $(VENV)/.run-ready ## what a run needs beside torch, numpy and h5py, for a machine without a network: CONTRIBUTING.md
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --constraint constraints.txt --dest $@ --no-deps \
	  --only-binary :all: --python-version $(WHEELS_FOR) --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
	  pydantic pydantic-core annotated-types typing-inspection mlperf-logging google-crc32c argcomplete tokenizers

lint: $(VENV)/.dev-ready ## style, imports between packages, words, shell scripts, Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	! git grep -nwiE -f docs/site/words.txt -- '*.py' '*.md' '*.sh' '*.sub' ':!tests' ':!results' # words that hide the meaning: docs/site/words.txt
	$(BIN)/shellcheck $(SCRIPTS)
	$(BIN)/hadolint Dockerfile

format: $(VENV)/.dev-ready ## mend what lint can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev-ready ## check types
	$(BIN)/mypy

clean: ## remove the virtual environments; data/ and runs/ stay
	rm -rf $(VENV) $(FLOOR) $(NEWEST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python %s, bertbench needs 3.11 or newer; name another, such as: make PYTHON=python3.12" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# torch brings its Triton, 3.6, whose interpreter can't work with numpy 2.4
$(FLOOR)/.ready: pyproject.toml constraints.txt
	@echo "installing the oldest torch that we promise into $(FLOOR): two minutes or more"
	$(PYTHON) -m venv --clear $(FLOOR)
	sed 's/^torch==.*/torch==2.11.0/; /^triton==/d; s/^numpy==.*/numpy<2.4/' constraints.txt >$(FLOOR)/constraints.txt
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(FLOOR)/constraints.txt \
	  --editable . pytest pytest-xdist
	touch $@

# As the image does it: torch first, which pyproject.toml may not allow yet, then the rest around it
$(NEWEST)/.ready: pyproject.toml constraints.txt
	@echo "installing the newest torch that pip finds into $(NEWEST): two minutes or more"
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check torch
	$(NEWEST)/bin/python benchmarks/bert/launch/requirements.py . $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(NEWEST)/constraints.txt \
	  --requirement $(NEWEST)/requirements.txt pytest pytest-xdist
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.run-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing what a run needs into $(VENV): about a minute"
	$(INSTALL) --editable .
	@$(COMPILE)
	touch $@

$(VENV)/.dev-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing everything for development into $(VENV): a minute or two"
	$(INSTALL) --editable ".[dev,docs,peers,study,kernels]"
	@$(COMPILE)
	touch $@ $(VENV)/.run-ready
