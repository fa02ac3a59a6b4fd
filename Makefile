# `make demo` and `make test` set up everything they need (see scripts/setup.sh).
.PHONY: demo test test-all cluster conformance soak zoo fuzz docs site bench lint format setup clean

PY := .venv/bin/python
# A file stays in one worker, so its exported programs are made once and no worker waits for another.
PYTEST := $(PY) -m pytest -n 2 --dist loadfile -q

demo:
	@bash scripts/setup.sh llm
	@$(PY) examples/smollm2.py

test: setup lint
	$(PYTEST) -m "not slow and not conformance and not cluster"

test-all: setup lint
	$(PYTEST) -m "not cluster"
	@$(MAKE) cluster

# The tests with real Ray, Spark and Dask, which need 1 GB of packages.
cluster: setup
	@bash scripts/cluster.sh
	.venv-cluster/bin/python -m pytest -q -m cluster tests/cluster

# All tests of ExecuTorch's own WebGPU backend.
conformance: setup
	$(PYTEST) tests/conformance tests/dynamic_shape/test_peer_programs.py

# Run threads, interrupts, conversations and loads for a long time: see docs/reliability.md.
soak: setup
	$(PY) -m tests.hostile.soak $(ARGS)

# Parse and plan N damaged files. A twentieth of N is inspected, loaded and run, converted, or read as weights.
# Each run continues where the last one stopped. The folder FUZZ stores the position and the findings.
N := 100000
FUZZ := .fuzz
share = $$(($(N) / $(1) + 1))
fuzz: setup
	@mkdir -p $(FUZZ)
	$(PY) -m tests.hostile.fuzz plan --count $(N) --state $(FUZZ)/plan.json
	$(PY) -m tests.hostile.fuzz inspect --count $(call share,20) --state $(FUZZ)/inspect.json
	$(PY) -m tests.hostile.fuzz run --count $(call share,20) --state $(FUZZ)/run.json
	$(PY) -m tests.hostile.fuzz gguf --count $(call share,20) --state $(FUZZ)/gguf.json
	$(PY) -m tests.hostile.fuzz ptd --count $(call share,20) --state $(FUZZ)/ptd.json

# Run the models of the zoo that have no result yet, in every mode, and write docs/models.md. Takes hours.
# Results are kept in tests/zoo/results.jsonl. Example: ARGS="--again --only timm/". See tests/zoo/__main__.py.
# torchaudio is installed beside the other packages: transformers imports it where it finds it, and fails
# because its compiled part needs CUDA. The zoo imports it without that part.
zoo: setup
	$(PY) -m pip install -q --no-deps --upgrade --target build/zoo torchaudio==2.11.0
	PYTHONPATH=build/zoo $(PY) -m tests.zoo $(ARGS)

docs: setup
	$(PY) -m tests.support.operators.portable
	$(PY) -m tests.support.operators.docs
	$(PY) -m tests.support.kernels.docs
	$(PY) -m benchmarks.history page

# Build the documentation into build/site, without a network. `python -m http.server -d build/site` shows it.
site: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Compare Pteron with other libraries: see benchmarks/README.md. Example: ARGS="--only rms_norm".
bench: setup
	@bash scripts/bench_peers.sh
	@$(PY) -m benchmarks.compare $(ARGS)

lint:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format:
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

setup:
	@bash scripts/setup.sh dev

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
