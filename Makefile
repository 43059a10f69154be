# Everything goes into .venv; a machine needs Python 3.11 or newer, pip and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-federation check results clean

setup: $(STAMP)

# torch comes first and pinned: left to the resolver it would bring gigabytes of CUDA along.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: setup
	$(BIN)/f2cto select --preset digits --out runs/demo --force

test: setup
	$(BIN)/pytest --numprocesses 2 --dist worksteal

# Real processes of Flower, of Ray and of a site on this machine; minutes.
test-federation: setup
	$(BIN)/pytest -m federation

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Benchmarks that write into results/; minutes, not part of the tests.
results: setup
	$(BIN)/python benchmarks/convergence.py

clean:
	rm -rf .venv build dist src/*.egg-info runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
