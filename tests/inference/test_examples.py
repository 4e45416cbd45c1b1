"""The examples in docstrings give what they say."""

import doctest
import importlib

import pytest

MODULES = [
    "diagnostics.circle",
    "diagnostics.collapse",
    "diagnostics.even",
    "diagnostics.gradients",
    "evaluate.features",
    "evaluate.fewshot",
    "evaluate.knn",
    "evaluate.linear",
    "evaluate.suite",
    "evaluate.transfer",
    "inference.diagnosis",
    "inference.exporting",
    "inference.loading",
    "inference.neighbours",
    "util.intervals",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(f"hypersphere.{name}"), optionflags=doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed
