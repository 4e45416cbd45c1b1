"""What the README shows is run."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_library_example_runs(capsys):
    first, *_ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(first, "README.md", "exec"), {})
    assert "uniformity -" in capsys.readouterr().out


def test_a_loop_of_ones_own_runs(capsys):
    _, loop, *_ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(compile(loop, "README.md", "exec"), names)
    assert "top1=" in capsys.readouterr().out
    assert names["loss"].isfinite()


def test_the_run_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, second, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    short = second.replace("epochs=20", "epochs=1, hidden=32, projection=8, progress=False").replace(
        "run.evaluate()", 'run.evaluate(("knn",))'
    )
    assert short != second
    names: dict = {}
    exec(short, names)
    assert names["run"].step == 8
    assert names["features"].shape == (16, 128)
    assert (tmp_path / names["run"].path / "evaluation.json").exists()


def test_the_example_of_arrays_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *_, arrays = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    short = arrays.replace("batch=64", 'batch=64, encoder="hypersphere/digits", hidden=32, progress=False')
    assert short != arrays
    names: dict = {}
    exec(short, names)
    assert names["run"].labelled


def test_every_public_name_is_in_the_readme():
    import hypersphere as hs

    for name in hs.__all__:
        assert f"hs.{name}" in README or name == "Run", name
