# make demo: the main job on embedded data.  make test: all checks.  Both set up .venv first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/installed
	$(BIN)/hypersphere demo

test: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "hypersphere needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	@echo "Installing into .venv (PyTorch is several GB: minutes, once)"
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv runs build dist
