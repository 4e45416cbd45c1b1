"""Docstrings of public names are complete, and their examples run."""

import doctest
import importlib
import inspect

import pytest

import hypersphere as hs

MODULES = [
    "diagnostics.circle",
    "diagnostics.collapse",
    "sphere.evenness",
    "diagnostics.gradients",
    "evaluate.features",
    "evaluate.fewshot",
    "evaluate.finetune",
    "evaluate.knn",
    "evaluate.linear",
    "evaluate.suite",
    "evaluate.transfer",
    "inference.diagnosis",
    "inference.embed_in_memory",
    "inference.exporting",
    "inference.loading",
    "inference.neighbours",
    "runs.results",
    "util.statistics",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(f"hypersphere.{name}"), optionflags=doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed


OURS = ("features", "fewshot", "finetune", "knn", "linear", "suite", "transfer")
PUBLIC = [getattr(hs.evaluate, name) for name in hs.evaluate.__all__]
PUBLIC = [one for one in PUBLIC if getattr(one, "__module__", "").rpartition(".")[2] in OURS]


@pytest.mark.parametrize(
    "function", [*filter(inspect.isfunction, PUBLIC), hs.diagnose, hs.export, hs.load, hs.embed, hs.load_results]
)
def test_docstrings_are_complete(function):
    documented = inspect.getdoc(function)
    for section in ("Args:", "Returns:", "Example:"):
        assert f"\n{section}\n" in documented
    for parameter in inspect.signature(function).parameters:
        assert f"\n    {parameter}: " in documented
