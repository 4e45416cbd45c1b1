# make demo: the main job on embedded data.  make test: all checks.  Both set up .venv first.
# make docs: run the code of all pages, then build the documentation into build/docs/site.
# make pictures: make the pictures of the documentation again, with Chromium.
# make package: build the wheel and the sdist into dist/, and try both in a fresh environment.
# make fuzz: random command lines and changed files; make chaos: a sweep that is killed, damaged and starved at random;
# make soak: memory and files over long use; make encoders: a small model of every architecture family of timm and
# torchvision. They take 10 to 60 minutes.
# make test-ecosystem: the tests with PEFT, transformers, Lightning, lightly and others, which it installs: two minutes.
# make test-oldest: the tests with the oldest versions that pyproject.toml allows, in an environment of their own.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

.PHONY: demo test test-ecosystem fuzz chaos soak encoders test-oldest docs pictures package clean

demo: .venv/installed
	$(BIN)/hypersphere demo

test: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest

test-ecosystem: .venv/installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[ecosystem]'
	$(BIN)/pytest -n 0 tests/regularize tests/integrations tests/losses

fuzz: .venv/installed-dev
	FUZZ=all $(BIN)/pytest -n 2 -s tests/fuzz

chaos: .venv/installed-dev
	$(BIN)/python -m tests.chaos

soak: .venv/installed-dev
	$(BIN)/python -m tests.soak

encoders: .venv/installed-dev
	$(BIN)/python -m tests.encoders --page docs/reference/encoders.md

docs: .venv/installed-docs
	$(BIN)/python docs/_tools/execute.py
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs/site
	@echo "Open build/docs/site/index.html"

pictures: .venv/installed-dev
	$(BIN)/python docs/_tools/pictures.py

package: .venv/installed-dev
	rm -rf dist build/package
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv build/package/venv
	build/package/venv/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/package && venv/bin/hypersphere --version && venv/bin/hypersphere demo --epochs 1
	tar --extract --file dist/*.tar.gz --directory build/package --strip-components 1 --one-top-level=sdist
	cd build/package/sdist && ../venv/bin/pip install --quiet --force-reinstall --no-deps . && ../venv/bin/hypersphere --version

OLDEST := .venv-oldest

test-oldest: $(OLDEST)/installed
	$(OLDEST)/bin/python -m pytest -W ignore::DeprecationWarning

$(OLDEST)/installed: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	grep -oE '"[a-z-]+(\[[a-z]+\])?>=[0-9.]+' pyproject.toml | sed -E 's/"|\[[a-z]+\]//g; s/>=(.*)/==\1.*/' > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check -c $(OLDEST)/constraints.txt -e '.[dev]'
	@touch $@

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "hypersphere needs Python 3.11.4 or newer: install it, or say make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	@echo "Installing into .venv (PyTorch is several GB: minutes, once)"
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv $(OLDEST) runs build dist
