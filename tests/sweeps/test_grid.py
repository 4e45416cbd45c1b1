"""Sweeps: what a grid means, and a real one whose processes are killed, stopped and gone on with."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.cli.parsing import parse
from hypersphere.cli.pretrain import parse_run_options, run_option_types
from hypersphere.cli.reproduce import ReproduceOptions
from hypersphere.cli.sweep import SweepOptions, _print_results, parse_grid
from hypersphere.config import Config, config_type, recipe
from hypersphere.errors import RunsFailed, UserError
from hypersphere.runs.results import Result, run_name
from hypersphere.runs.run import load_run
from hypersphere.sweeps.grid import Point, distinct, missing_jobs, points_of, product, results_in, rows
from hypersphere.sweeps.jobs import Job, run_job
from hypersphere.train import read_metrics
from tests.pictures import draw

SMALL = {"hidden": 32, "projection": 8, "batch": 32, "epochs": 1, "knn_every": 0, "device": "cpu", "log_every": 1}
WORDS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
OVER = {"lr": [0.004, 0.008], "seed": [0]}
OF_SWEEP = ["--save-every=1", "--probes", "knn", "--over", "lr=0.004,0.008", "seed=0"]
SWEEP = ["sweep", "byol", "--data", "digits", *WORDS, *OF_SWEEP]


@pytest.fixture(scope="module")
def finished_sweep(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished_sweep")
    return out, hs.sweep("byol", "digits", over=OVER, probes=["knn"], out=out, workers=0, **SMALL)


def metrics(out):
    return {file.parent.name: file.read_bytes() for file in out.glob("*/metrics.jsonl")}


def processes_of(parent):
    """By the folder of the run that each has open."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {
        Path(os.readlink(file)).parent.name: int(pid) for pid in children for file in Path(f"/proc/{pid}/fd").glob("1")
    }


def test_killed_stopped_and_gone_on_with_it_ends_as_if_undisturbed(finished_sweep, tmp_path, capsys):
    out = tmp_path / "sweep"
    command = [sys.executable, "-m", "hypersphere", *SWEEP, "--workers", "1", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(condition):
        while not (found := condition()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        return found

    def under_way(least):
        steps = {file.parent.name: len(read_metrics(file)) for file in out.glob("*/metrics.jsonl")}
        return [name for name, step in steps.items() if least <= step < 25 and (out / name / "checkpoint.pt").exists()]

    victim = wait_for(lambda: under_way(2))[0]
    killed = processes_of(process.pid)[victim]
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: processes_of(process.pid).get(victim, killed) != killed)  # another has taken it up
    others = list(processes_of(process.pid).values())
    process.send_signal(signal.SIGTERM)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, told
    assert "2 runs: 0 finished, 0 begun, 2 to start" in printed
    assert re.search(r"lr 0.00[48], seed 0: killed by SIGKILL; restarting it \(1 of 2\)", told)
    assert re.search(r"stopped: \d of 2 runs are done; the same command continues", told)
    assert not any(Path(f"/proc/{pid}").exists() for pid in others)

    assert main([*SWEEP, "--workers", "0", "--out", str(out)]) == 0
    assert "resuming at step" in capsys.readouterr().err
    there, results = finished_sweep
    assert metrics(out) == metrics(there)
    evaluations = {name: result.evaluation for name, result in results_in(out).items()}
    assert evaluations == {run_name(result.cell, result.config): result.evaluation for result in results}


def test_said_again_it_repeats_nothing_but_measures_what_is_new(finished_sweep, capsys, monkeypatch):
    out, results = finished_sweep
    words = [*SWEEP, "--workers", "0", "--out", str(out)]
    monkeypatch.setattr("hypersphere.sweeps.grid.run_jobs", lambda jobs, *_: pytest.fail("it ran") if jobs else {})
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "2 runs: 2 finished, 0 begun, 0 to start" in printed
    for lr, result in zip(("0.004", "0.008"), results, strict=True):
        assert re.search(rf"{lr} +│ 1 of 1 +│ +{result.evaluation['knn']['top1']:.2f} │", printed)
    monkeypatch.undo()
    before = metrics(out)
    more = hs.sweep("byol", "digits", over=OVER, probes=["few-shot"], out=out, workers=0, **SMALL)
    assert metrics(out) == before  # nothing was learnt again
    assert [result.evaluation["knn"] for result in more] == [result.evaluation["knn"] for result in results]
    assert all("1-shot" in result.evaluation for result in more)
    assert main([*words, "--dry-run", "--hidden=16"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "2 runs: 0 finished, 0 begun, 2 to start", "lr 0.004, seed 0", "lr 0.008, seed 0"
    ]  # fmt: skip


def test_a_result_says_all_of_its_run(finished_sweep):
    out, (first, _) = finished_sweep
    (file,) = out.glob("results/*" + first.hash + ".json")
    record = json.loads(file.read_text())
    assert record["hash"] == recipe("byol", "digits", **SMALL, lr=0.004).hash
    assert (record["config"]["lr"], record["config"]["seed"], record["about"]["device"]) == (0.004, 0, "cpu")
    assert {"commit", "torch", "python"} <= record["about"].keys()
    assert record["seconds"] > 0


def test_one_that_fails_is_told_when_the_others_are_done(tmp_path, capsys):
    words = ["sweep", "byol", "--data", "digits", *[w for w in WORDS if "batch" not in w], "--epochs=1"]
    words += ["--over", "batch=4096,256"]
    (right,) = [point for point in points(*words[1:]) if point.config.batch == 256]
    words += ["--probes", "knn", "--workers", "0", "--out", str(tmp_path)]
    (tmp_path / right.name).mkdir()
    (tmp_path / right.name / ".lock").touch()  # as a run leaves it that is killed at its very start
    assert main(words) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1].startswith("hypersphere: 1 of 2 runs failed, such as batch 4096 (")
    assert "--batch 4096 is more than the 1137" in printed.err
    assert re.search(r"4096 +│ 0 of 1 +│ +– ", printed.out)
    assert len(list(tmp_path.glob("results/*.json"))) == 1
    options = {**SMALL, "batch": 4096, "out": tmp_path, "workers": 0}
    with pytest.raises(RunsFailed, match="1 of 1 runs failed"):
        hs.sweep("byol", "digits", over={"seed": [0]}, **options)


def points(*words):
    """As the command line makes them of its words."""
    given = parse_run_options("sweep", SweepOptions, words)
    method, over = given.pop("method"), given.pop("over")
    return points_of(method, parse_grid(method, over, given), given)


def test_every_field_can_be_swept_and_means_what_pretrain_means_by_it():
    """Values of all fields, as the command line has them and as Python has them."""
    said = {
        "tau": ("0.9,0.95", [0.9, 0.95]),
        "predictor": ("true,false", [True, False]),
        "energy_layers": ("projector,projector+predictor", [("projector",), ("projector", "predictor")]),
        "warmup": ("None,3", [None, 3]),
        "norm": ("group,none", ["group", "none"]),
        "workers": ("2", [2]),
        "root": ("/a", ["/a"]),
    }
    words = [f"{name.replace('_', '-')}={value}" for name, (value, _) in said.items()]
    found = points("byol-mhe", "--data", "digits", "--epochs", "5", "--over", *words)
    wanted = [
        recipe("byol-mhe", "digits", epochs=5, **values)
        for values in product({name: values for name, (_, values) in said.items()})
    ]
    assert [point.config for point in found] == wanted
    assert len({point.name for point in found}) == 2**5
    assert set(config_type("byol").__dataclass_fields__) <= {*run_option_types("byol-mhe"), "method"}


def test_methods_and_data_bring_their_own_defaults():
    found = points("byol", "--epochs", "5", "--over", "method=byol,moco-mhe", "data=digits,cifar10", "seed=0,1")
    names = [("byol", "digits"), ("byol", "cifar10"), ("moco-mhe", "digits"), ("moco-mhe", "cifar10")]
    wanted = [recipe(*name, epochs=5, seed=seed) for seed in (0, 1) for name in names]
    assert [point.config for point in found] == wanted
    assert found[2].values == {"method": "moco-mhe", "data": "digits", "seed": 0}


def test_runs_that_are_the_same_are_one_and_fields_without_a_hash_tell_runs_apart():
    same = points("byol", "--data", "digits", "--over", "method=byol,byol", "tau=0.99")
    assert len(missing_jobs(same, {}, ("knn",))) == 1
    apart = points("byol", "--data", "digits", "--over", "precision=float32,bfloat16")
    assert len({point.config.hash for point in apart}) == 1
    assert len(missing_jobs(apart, {}, ("knn",))) == 2


def test_runs_that_differ_by_what_nothing_looks_at_are_one():
    """And in the table each has its row."""
    words = ["method=byol,simclr", "tau=0.9,0.99", "seed=0,1"]
    found = points("byol", "--data", "digits", "--epochs", "5", "--over", *words)
    assert len(found) == 8
    assert len(missing_jobs(found, {}, ("knn",))) == 6  # SimCLR has no tau
    simclr = [point for point in found if point.values["method"] == "simclr" and point.values["seed"] == 1]
    assert [point.values["tau"] for point in simclr] == [0.9, 0.99]
    assert len({point.name for point in simclr}) == 1
    assert [row.values["tau"] for row in rows(found, {})] == [0.9, 0.99, 0.9, 0.99]
    for words in (["tau=0.99,0.9", "method=simclr,byol", "seed=1"], ["tau=0.5", "method=simclr,byol", "seed=1"]):
        again = points("byol", "--data", "digits", "--epochs", "5", "--over", *words)
        assert simclr[0].name in {point.name for point in again}  # whatever was said, and in which order


def test_a_sweep_notices_other_images_and_labels_in_a_folder(tmp_path):
    draw(tmp_path / "in", 6)
    table, options = tmp_path / "labels.csv", ("--data", str(tmp_path / "in"), "--epochs", "5", "--over", "seed=0")

    def name(*more):
        (point,) = points("byol", *more, *options)
        return point.name

    bare = name()
    table.write_text("path,label\n001.png,a\n002.png,b\n004.png,b\n")
    said = ("--labels", str(table))
    first = name(*said)
    assert first == name(*said) != bare
    table.write_text("path,label\n001.png,a\n002.png,b\n004.png,a\n")
    relabelled = name(*said)
    draw(tmp_path / "in/more", 1)
    assert len({bare, first, relabelled, name(*said), name()}) == 5
    draw(tmp_path / "in" / os.fsdecode(b"caf\xe9"), 2)
    draw(tmp_path / "in/tea", 2)
    assert name() != bare


def test_rows_are_means_over_seeds_in_the_order_of_the_grid():
    def made(point):
        found = {"knn": {"top1": 80 + point.config.lr * point.config.seed}, "sphere": {"uniformity": -2.0}}
        return Result(point.cell, point.config, point.config.hash, found, 1.0, {})

    values = product({"lr": [2, 1], "seed": [0, 1, 2]})
    grid = [Point(some, recipe("byol", "digits", **some)) for some in values]
    found = {point.name: made(point) for point in grid}
    first, second = rows(grid, found)
    assert (first.values, second.values) == ({"lr": 2}, {"lr": 1})
    number = first.numbers["knn, %"]
    low, high = stats.t.interval(0.95, 2, 82, stats.sem([80, 82, 84]))
    assert np.allclose((number.mean - number.half_width, number.mean + number.half_width), (low, high))
    lost = grid[0]
    found[lost.name] = Result(lost.cell, lost.config, lost.config.hash, {}, 0.0, {}, "the loss is nan")
    del found[grid[2].name]
    first, _ = rows(grid, found)
    assert (first.runs, first.numbers["knn, %"].n) == ("2 of 3, 1 diverged", 1)
    unlabelled = Result("c", lost.config, "h", {}, 1.0, {}, None, [{"epoch": 1, "uniformity_of_features": -1.5}])
    assert rows(grid[:1], {lost.name: unlabelled})[0].numbers["uniformity"].mean == -1.5


def test_results_of_the_last_version_are_found(tmp_path):
    """Which count options that the method does not have."""
    (point,) = points("supervised", "--data", "digits", "--over", "seed=1")
    old = Config.from_json({**point.config.to_json(), "hidden": 512, "tau": 0.9})
    assert old.hash != point.config.hash
    Result(point.cell, old, old.hash, {"knn": {"top1": 80.0}, "sphere": {}}, 1.0, {}).write(tmp_path / "results")
    assert missing_jobs([point], results_in(tmp_path), ("knn",)) == []
    assert missing_jobs([point], {}, ("knn",)) != []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["byol"], "missing option --over: hypersphere sweep METHOD --over OPTION=VALUE,…$"),
        (["--over", "lr=1"], "missing argument METHOD: hypersphere sweep METHOD --over OPTION=VALUE,…$"),
        (["byol", "--over", "lr"], "--over must be OPTION=VALUE,VALUE…, got 'lr'$"),
        (["byol", "--over", "lr=1,,2"], "--over must be OPTION=VALUE,VALUE…, got 'lr=1,,2'$"),
        (["byol", "--over", "lrr=1"], "unknown option 'lrr': did you mean 'lr'"),
        (["byol", "--over", "lr=three"], "--lr must be a number, got 'three'$"),
        (["byol", "--over", "lr=0.1,-1"], "--lr must be above 0, got -1.0"),
        (["byol", "--over", "predictor=maybe"], "--predictor must be true or false, got 'maybe'$"),
        (["byol", "--over", "lr=1", "lr=2"], "--over lr is given twice: give all of its values at once$"),
        (["byol", "--lr", "1", "--over", "lr=2"], "--lr is given beside --over lr=…: leave one out$"),
        (["byol", "--over", "out=a"], "--out cannot be swept"),
        (["byol", "--over", "method=byol,smclr"], "unknown method 'smclr': did you mean 'simclr'"),
        (["byol", "--over", "lr=1", "--workers", "-1"], "--workers must be at least 0, got -1"),
        (["byol", "--over", "lr=1", "--probes"], "--probes needs a value$"),
        (
            ["byol", "--over", "energy_s=0,2", "--dry-run"],
            "--over energy_s has no effect on byol on digits: leave it out",
        ),
        (
            ["byol", "--over", "seed=0,1", "queue=8,9", "method=byol,simclr"],
            r"--queue is not an option of byol, simclr \(moco, infomin have it\)$",
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words, "--data", "digits"]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert re.search(message, line)
    assert list(tmp_path.iterdir()) == []


def test_a_field_may_change_some_of_the_runs_alone(tmp_path):
    assert len(points("byol", "--data", "digits", "--over", "method=byol,byol-mhe", "energy_s=0,2")) == 4
    assert len(points("byol", "--data", "digits", "--over", "energy=0,1", "energy_s=0,2")) == 4
    with pytest.raises(
        UserError, match="`over` trust has no effect on byol on digits: leave it out"
    ):  # which learn by AdamW
        hs.sweep("byol", "digits", over={"trust": [0.1, 0.2]}, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ray_needs_no_address():
    def ray(*words):
        return parse("reproduce", ReproduceOptions, words).ray

    assert ray("--ray", "--epochs", "3") == ray("tab:bn", "--ray") == ray("--ray=") == ""
    assert ray("--ray", "10.0.0.1:6379") == ray("--ray=10.0.0.1:6379", "tab:bn") == "10.0.0.1:6379"
    assert ray("tab:bn") is None
    with pytest.raises(UserError, match="cannot be swept"):
        next(product({"out": ["a"]}))


def test_values_said_twice_are_one_run_and_may_be_several_numbers():
    found = points("swav", "--data", "digits", "--over", "seed=0,0,1", "small_area=0.1+0.3")
    assert [point.title for point in found] == ["seed 0, small_area 0.1 + 0.3", "seed 1, small_area 0.1 + 0.3"]


@pytest.mark.parametrize("values", [0.1, "byol", []])
def test_from_python_values_are_lists(values, tmp_path):
    with pytest.raises(UserError, match="`over` lr must be a list of values"):
        hs.sweep("byol", "digits", over={"lr": values}, out=tmp_path)


def test_values_may_be_anything_that_gives_them():
    assert list(product({"lr": (lr for lr in (1, 2)), "seed": range(2)})) == [
        {"lr": lr, "seed": seed} for seed in (0, 1) for lr in (1, 2)
    ]


def test_a_sweep_is_not_for_a_launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="start many runs from one process, without torchrun"):
        hs.sweep("byol", "digits", over={"seed": [0]}, out=tmp_path, **SMALL)
    with pytest.raises(UserError, match=r"RANK and WORLD_SIZE are set, but not all .*MASTER_ADDR"):
        hs.pretrain("byol", "digits", **SMALL)


def test_changed_arrays_are_another_run(tmp_path):
    def name_with(images):
        np.savez(tmp_path / "images.npz", images=images)
        return distinct([({}, recipe("byol", str(tmp_path / "images.npz")))])[0].name

    zeros, ones = np.zeros((9, 8, 8), np.uint8), np.ones((9, 8, 8), np.uint8)
    assert name_with(zeros) != name_with(ones)
    assert name_with(ones) == name_with(ones)


def test_the_table_of_a_sweep_is_whole_in_a_log(finished_sweep, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    values = {"method": "byol", "lr": 0.00012345, "energy_layers": ("projector", "predictor"), "weight_decay": 1.25e-6}
    values |= {"encoder": "torchvision/resnet18", "crop_min": 0.2, "data": "x[old]", "temperature": 0.12345}
    _print_results([Point(values, recipe("byol", "digits"))], {})
    shown = capsys.readouterr().out
    for word in ("torchvision/resnet18", "1.25e-06", "0.00012345", "x[old]", "0 of 1"):
        assert word in shown


def test_where_results_cannot_be_kept_nothing_is_learnt(tmp_path, capsys):
    (tmp_path / "results").touch()
    assert main(["sweep", "byol", "--data", "digits", "--over", "seed=0", "--out", str(tmp_path)]) == 2
    assert "cannot make the folder" in capsys.readouterr().err
    assert not list(tmp_path.glob("*/run.json"))


def test_a_run_taken_up_again_is_told_what_is_said_now(tmp_path, monkeypatch):
    small = {"hidden": 8, "projection": 8, "batch": 256, "epochs": 1, "knn_every": 0}
    jobs = [Job("cell", "title", recipe("byol", "digits", log_every=every, **small), ()) for every in (8, 1)]
    run_job(jobs[0], tmp_path, progress=False)
    heard = []
    monkeypatch.setattr(
        "hypersphere.sweeps.jobs.go_on", lambda path, config, progress: heard.append(config) or load_run(path)
    )
    run_job(jobs[1], tmp_path, progress=False, device="cpu")
    assert [(config.log_every, config.device) for config in heard] == [(1, "cpu")]
