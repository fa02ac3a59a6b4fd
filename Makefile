# `make demo` and `make test` set up everything they need (see scripts/setup.sh).
.PHONY: demo quick test test-all cluster optimum conformance soak zoo fuzz differential check-op docs site bench
.PHONY: gpu-model gpu-baseline lint lock format setup clean

PY := .venv/bin/python
# The tests start many processes, so compiled modules are kept, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE
# A file stays in one worker, so its exported programs are made once and no worker waits for another.
PYTEST := $(PY) -m pytest -n 2 --dist loadfile -q
# As with a version of wgpu-py whose C functions Pteron does not know.
PUBLIC := $(PYTEST) --public-calls

SMOKE := tests/pure/test_pipeline.py tests/pure/test_recording.py tests/pure/test_second_call.py

demo:
	@bash scripts/setup.sh llm
	@$(PY) examples/smollm2.py

# Prove a change in about three minutes: the linters, the pure tests, and the tests that the change touches.
quick: setup lint
	$(PY) -m tests.quick

# Seconds: files are read, planned and run on a device without a GPU. For hooks before a commit.
smoke:
	@$(PY) -m pytest -q -n 0 $(SMOKE)

test: setup lint
	$(PYTEST) -m "not slow and not conformance and not own_venv"
	$(PUBLIC) tests/gpu_only/test_submit.py tests/gpu_only/test_interrupts.py \
		"tests/dynamic_shape/test_replay.py::test_results_equal_torch_at_every_live_shape[rope]"

test-all: setup lint
	$(PYTEST) -m "not own_venv"
	$(PUBLIC) tests/gpu_only tests/dynamic_shape
	@$(MAKE) cluster optimum

# The tests with real Ray, Spark and Dask, which need 1 GB of packages.
cluster: setup
	@bash scripts/own_venv.sh cluster
	.venv-cluster/bin/python -m pytest -q tests/cluster

# Models that optimum-executorch exports and runs: on ExecuTorch, and on Pteron.
optimum: setup
	@bash scripts/own_venv.sh optimum
	.venv-optimum/bin/python -m pytest -q tests/optimum

# All tests of ExecuTorch's own WebGPU backend.
conformance: setup
	$(PYTEST) tests/conformance tests/dynamic_shape/test_peer_programs.py

# Run threads, interrupts, conversations and loads for a long time: see docs/reliability.md.
soak: setup
	$(PY) -m tests.hostile.soak $(ARGS)

# Parse and plan N damaged files. A twentieth of N is inspected, loaded and run, converted, or read as weights.
# Each run continues where the last one stopped, the first run at number FIRST. The folder FUZZ stores the position and
# the findings.
N := 100000
FUZZ := .fuzz
FIRST := 0
share = $$(($(N) / $(1) + 1))
fuzz: setup
	@mkdir -p $(FUZZ)
	$(PY) -m tests.hostile.fuzz plan --start $(FIRST) --count $(N) --state $(FUZZ)/plan.json
	$(PY) -m tests.hostile.fuzz xnnpack --start $(FIRST) --count $(N) --state $(FUZZ)/xnnpack.json
	$(PY) -m tests.hostile.fuzz inspect --start $(FIRST) --count $(call share,20) --state $(FUZZ)/inspect.json
	$(PY) -m tests.hostile.fuzz run --start $(FIRST) --count $(call share,20) --state $(FUZZ)/run.json
	$(PY) -m tests.hostile.fuzz gguf --start $(FIRST) --count $(call share,20) --state $(FUZZ)/gguf.json
	$(PY) -m tests.hostile.fuzz ptd --start $(FIRST) --count $(call share,20) --state $(FUZZ)/ptd.json

# Run random programs by Pteron, by ExecuTorch's own runtime and by torch, and compare. Each run continues where the
# last one stopped. The folder DIFFERENTIAL stores the position, a summary and the failures. N=20000 takes hours.
DIFFERENTIAL := .differential
differential: N := 2000
differential: setup
	$(PY) -m tests.differential --count $(N) --folder $(DIFFERENTIAL)
	$(PY) -m tests.differential --count $(call share,100) --folder $(DIFFERENTIAL) --exported

# Run the models of the zoo that have no result yet, in every mode, and write docs/models.md. Takes hours.
# Results are kept in tests/zoo/results.jsonl. Example: ARGS="--again --only timm/". See tests/zoo/__main__.py.
# torchaudio is installed beside the other packages: transformers imports it where it finds it, and fails
# because its compiled part needs CUDA. The zoo imports it without that part.
zoo: setup
	$(PY) -m pip install -q --no-deps --upgrade --target build/zoo torchaudio==2.11.0
	PYTHONPATH=build/zoo $(PY) -m tests.zoo $(ARGS)

# Prove an operator in about a minute: its catalogue entry, table, kernels, export, lint and tests.
check-op: setup
	@$(PY) -m tests.check_op $(NAME)

docs: setup
	$(PY) -m tests.support.operators.executorch_kernels
	$(PY) -m tests.support.operators.docs
	$(PY) -m tests.support.option_table
	$(PY) -m benchmarks.history page

# Build the documentation into build/site, without a network. `python -m http.server -d build/site` shows it.
site: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Compare Pteron with other libraries: see benchmarks/README.md. Example: ARGS="--only rms_norm".
bench: setup
	@bash scripts/bench_peers.sh
	@$(PY) -m benchmarks.compare $(ARGS)

# Predict what kernels cost on GPUs that this machine has not got: see docs/performance.md.
# Examples: ARGS="--program resnet18", ARGS="--against main", ARGS=--help
gpu-model: setup
	@$(PY) -m benchmarks.gpu_model $(ARGS)

# Write benchmarks/gpu_model/baseline.json again, with which `make test` compares kernels.
gpu-baseline: setup
	@$(PY) -m benchmarks.gpu_model.gate

# Which lines do the tests without torch reach? Fails below the floor. Takes ten minutes; the nightly workflow runs it.
COVERAGE_FLOOR := 60
coverage: setup
	$(PY) -m coverage run --source=pteron -m pytest -q -p no:xdist tests/pure tests/devices tests/gpu_only
	$(PY) -m coverage report --skip-covered --fail-under=$(COVERAGE_FLOOR)

# The lines of each package, and its largest files.
lines:
	@$(PY) scripts/count_lines.py

lint:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# Write the hash of every file of the pinned packages again, after a change of requirements.
lock: setup
	$(PY) -m pip install -q uv==0.13.8
	for name in llm llm-models dev dev-models; do \
		$(PY) -m uv pip compile requirements/$$name.txt --output-file requirements/$$name.lock --no-deps --universal \
			--python-version 3.11.2 --generate-hashes --no-emit-package torch --no-header --no-annotate -q || exit 1; done

format:
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

setup:
	@bash scripts/setup.sh dev

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
