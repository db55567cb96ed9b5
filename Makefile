# make setup | report | check | test | bench | torture. Each sets up what it needs; the second time that is instant.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
COMPILED := .venv/.compiled
# A file's tests share fixtures, so one worker runs them; those that take longest are first.
SHARED := --dist loadfile --no-loadscope-reorder
# Where this is set, every process compiles all it imports anew: a third of the time of all tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup report check test lint types tests tests-fast test-long durations coverage bench torture docs pictures format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv: a few minutes, once"
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
		--config-settings editable_mode=compat --editable '.[dev]'
	touch $@

# Once, by one process: workers that start together would each compile all that they import. First
# what commands in processes of their own run, then the same with types checked.
$(COMPILED): $(READY)
	$(BIN)/python -m compileall -q innerloop tools
	$(BIN)/pytest --collect-only -qq > /dev/null || true  # what is wrong is told when tests run
	touch $@

report: $(READY)
	$(BIN)/innerloop report -o report.html

# Lint, types and everything fast: before each commit.
check: lint
	@$(MAKE) --no-print-directory -j 2 types tests-fast

# Types beside tests: these wait for processes that they kill, which leaves time for those. Two
# workers: each loads the package and makes shared fixtures anew, a quarter of a minute of CPU time.
test: lint
	@$(MAKE) --no-print-directory -j 2 types tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# A larger nursery for short-lived objects: node collects them less often.
types: export NODE_OPTIONS := --max-semi-space-size=128
types: $(READY)
	$(BIN)/pyright

tests: $(COMPILED)
	$(BIN)/pytest $(SHARED) -n 3

tests-fast: $(COMPILED)
	$(BIN)/pytest $(SHARED) -n 2 -m "not slow"

# Thousands of random programs of the language, exactly against their interpreter: ten minutes.
test-long: $(READY)
	INNERLOOP_FUZZ=5000 $(BIN)/pytest tests/test_language_fuzz.py

# Which tests are slow is what was measured last: tests/durations.json. TESTS names files to measure.
durations: $(READY)
	$(BIN)/pytest $(SHARED) -n 2 --record-durations $(TESTS)

# The table is printed also where a test fails; TESTS names those to run, all unless given.
coverage: $(READY)
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest $(SHARED) -n 2 $(TESTS); status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$status

# The site, in `site`: tutorials are run in full, pages are made from the code.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "site written to site; see it with: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

# The pictures of the README, in docs/pictures, light and dark: half a minute. The last needs Chromium.
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

# Kills, corrupted files, bad inputs, changed weights, hostile strings: an hour on two cores.
# TORTURE gives it options, such as `--share 0.01` or `--only kills-of-train`.
torture: $(READY)
	$(BIN)/python -m tools.torture $(TORTURE)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv report.html site build *.egg-info
