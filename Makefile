PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup test lint format quickstart docs wheel licences audit clean

setup: $(VENV)/.ready

# The stamp is newer than what it depends on, so set-up runs again only when the requirements change.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: setup
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

quickstart: setup
	$(BIN)/pscnn quickstart

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The manual's generator has a stamp of its own: tests and linters do without it.
$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# The wheel in an empty environment; VERSIONS=oldest for the oldest ones allowed.
wheel:
	PYTHON=$(PYTHON) .ci/wheel $(VERSIONS)

licences: setup
	$(BIN)/python .ci/licences.py

# Known vulnerabilities of the pinned versions, in an environment of its own; asks a service on the network.
audit:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet pip-audit
	$(VENV)-audit/bin/pip-audit --no-deps --disable-pip --requirement constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-audit .pytest_cache .mypy_cache .ruff_cache .coverage build dist site
