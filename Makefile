# make setup | report | check | test | bench | torture: each target first sets up what it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
COMPILED := .venv/.compiled
# The tests of a file share fixtures, so one worker runs them. Slow files come first.
SHARED := --dist loadfile --no-loadscope-reorder
# Bytecode is cached: compiling the imports again in every process would take a third of the test time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup report check test lint types tests tests-fast test-long durations coverage bench torture docs pictures format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv: a few minutes, once"
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
		--config-settings editable_mode=compat --editable '.[dev]'
	touch $@

# One process compiles everything before the workers start; otherwise each worker would compile it.
# The first command compiles the plain modules, the second the modules with checked types.
$(COMPILED): $(READY)
	$(BIN)/python -m compileall -q innerloop tools
	$(BIN)/pytest --collect-only -qq > /dev/null || true  # errors are reported when the tests run
	touch $@

report: $(READY)
	$(BIN)/innerloop report -o report.html

# Lint, types and all fast tests. Run it before each commit.
check: lint
	@$(MAKE) --no-print-directory -j 2 types tests-fast

# The type checker runs beside the tests, some of which only wait for processes. More workers would
# cost more CPU time: each loads the package and builds the shared fixtures, in 15 seconds.
test: lint
	@$(MAKE) --no-print-directory -j 2 types tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# More memory for short-lived objects, so that node collects garbage less often.
types: export NODE_OPTIONS := --max-semi-space-size=128
types: $(READY)
	$(BIN)/pyright

tests: $(COMPILED)
	$(BIN)/pytest $(SHARED) -n 3

tests-fast: $(COMPILED)
	$(BIN)/pytest $(SHARED) -n 2 -m "not slow"

# Compare 5,000 random programs of the language with their interpreter, exactly: ten minutes.
test-long: $(READY)
	INNERLOOP_FUZZ=5000 $(BIN)/pytest tests/test_language_fuzz.py

# Measure the CPU time of each test and write tests/durations.json. TESTS selects files.
durations: $(READY)
	$(BIN)/pytest $(SHARED) -n 2 --record-durations $(TESTS)

# The table is printed even if a test fails. TESTS selects files; the default is all.
coverage: $(READY)
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest $(SHARED) -n 2 $(TESTS); status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$status

# Build the site in `site`. This runs the tutorials in full and generates pages from the code.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "site written to site; see it with: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

# Draw the README's pictures in docs/pictures, light and dark: half a minute. The last one needs Chromium.
pictures: $(READY)
	$(BIN)/python -m tools.pictures
	$(BIN)/python -c "from pathlib import Path; from tools.lab_screenshot import take_screenshots; \
		take_screenshots(Path('docs/pictures'), step=12, scale=1)"

bench: $(READY)
	$(BIN)/python benchmarks/linear_attention.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/acting.py
	$(BIN)/python benchmarks/identify.py
	$(BIN)/python benchmarks/regret.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/small_transformer.py
	$(BIN)/python benchmarks/gpt2_steps.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/small_transformer_training.py
	$(BIN)/python benchmarks/sparse_solvers.py
	$(BIN)/python benchmarks/lista_vm_training.py
	$(BIN)/python benchmarks/sparse_tails.py
	$(BIN)/python benchmarks/solve.py

# Attack the package with kills, corrupted files, bad inputs, changed weights and hostile text: an
# hour on two cores. TORTURE passes options, such as `--share 0.01` or `--only kills-of-train`.
torture: $(READY)
	$(BIN)/python -m tools.torture $(TORTURE)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv report.html site build *.egg-info
