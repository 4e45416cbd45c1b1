"""The command line as a person meets it: real processes, really killed."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

from hypersphere.cli import entry, main
from hypersphere.probes import EVERY_PROBE
from hypersphere.train import load_checkpoint, read_metrics
from tests.processes import Process, completed, without_privileges, write_ascii_alone, write_no_file_beyond

COMMAND = [sys.executable, "-m", "hypersphere"]
SMALL = ["--data", "digits", "--hidden", "32", "--projection", "8", "--device", "cpu"]
RUN = ["pretrain", "byol-mhe", *SMALL, "--epochs", "2", "--save-every", "7", "--log-every", "1", "--knn-every", "1"]
STEPS = 16


def hypersphere(*words, **options) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def in_this_process(capsys, *words) -> subprocess.CompletedProcess:
    """The same without waiting for torch to load."""
    words = [str(word) for word in words]
    status = main(words)
    return subprocess.CompletedProcess(words, status, *capsys.readouterr())


def wait_for_step(folder: Path, step: int, process: Process) -> None:
    while process.poll() is None:
        lines = read_metrics(folder / "metrics.jsonl")
        if lines and lines[-1]["step"] >= step:
            return
        time.sleep(0.005)
    pytest.fail(f"ended before step {step}: {process.communicate()}")


def one_line(found: subprocess.CompletedProcess) -> str:
    """The message of a mistake: one line, no traceback, a status that says so."""
    assert found.returncode == 2, found
    lines = found.stderr.strip().splitlines()
    message = lines[-1]
    assert message.startswith("hypersphere: ")
    assert "Traceback" not in found.stderr
    return message


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    found = completed(*RUN, "--out", folder)
    assert found.returncode == 0, found.stderr
    assert f"{STEPS} steps in" in found.stdout
    return folder


def assert_same_run(a: Path, b: Path) -> None:
    assert (a / "metrics.jsonl").read_bytes() == (b / "metrics.jsonl").read_bytes()
    ours, theirs = (load_checkpoint(folder / "checkpoint.pt") for folder in (a, b))
    assert ours["step"] == theirs["step"] == STEPS
    for name, value in ours["method"].items():
        assert torch.equal(value, theirs["method"][name]), name


def test_a_run_killed_at_random_steps_ends_as_if_never_stopped(unbroken, tmp_path):
    folder = tmp_path / "run"
    seed = random.randrange(10**6)
    steps = sorted(random.Random(seed).sample(range(1, STEPS - 2), 2))
    print(f"kill seed {seed}: at steps {steps}")  # shown when the test fails
    words = [*RUN, "--out", folder]
    for step in steps:
        process = Process(*words)
        wait_for_step(folder, step, process)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        words = ["pretrain", "--resume", folder]
    found = completed(*words)
    assert found.returncode == 0, found.stderr
    assert_same_run(folder, unbroken)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_saves_itself(unbroken, tmp_path, signum):
    folder = tmp_path / "run"
    process = Process(*RUN, "--out", folder, "--save-every", "1000")
    wait_for_step(folder, 5, process)
    process.send_signal(signum)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    step = int(re.search(rf"stopped after step (\d+) of {STEPS}: continue with --resume", stderr).group(1))
    assert "Traceback" not in stderr
    assert load_checkpoint(folder / "checkpoint.pt")["step"] == step < STEPS
    if signum == signal.SIGINT:
        found = completed("pretrain", "byol-mhe", "--data", "digits", "--resume", folder)
        assert found.returncode == 0, found.stderr
        assert_same_run(folder, unbroken)


def test_a_signal_to_all_of_its_processes_is_no_loss(tmp_path):
    """As batch systems send it, and Ctrl-C: those that decode files get it too."""
    (tmp_path / "images").mkdir()
    for number in range(24):
        Image.new("RGB", (32, 32), (10 * number, 0, 90)).save(tmp_path / "images" / f"{number}.png")
    folder = tmp_path / "run"
    options = "--encoder hypersphere/digits --batch 4 --epochs 1000 --workers 2 --log-every 1 --device cpu --out"
    command = [*COMMAND, "pretrain", "byol", "--data", tmp_path / "images", *options.split(), folder]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for_step(folder, 8, process)
    os.killpg(process.pid, signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, stderr
    assert "Traceback" not in stderr
    step = int(re.search(r"stopped after step (\d+) of 6000", stderr).group(1))
    assert load_checkpoint(folder / "checkpoint.pt")["step"] == step
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_evaluate_shows_a_table(unbroken):
    found = completed("evaluate", unbroken, "--probes", "knn", "few-shot", "linear-cached")
    assert found.returncode == 0, found.stderr
    for word in ("20-NN", "1-shot", "linear-cached", "uniformity", "evaluation.json"):
        assert word in found.stdout


def test_help_explains_every_option_with_its_default():
    found = hypersphere("pretrain", "byol-mhe", "--data", "digits", "--help", env={**os.environ, "COLUMNS": "200"})
    assert found.returncode == 0
    from hypersphere.config import config_type, recipe

    for name in {*vars(recipe("byol-mhe", "digits")), "resume", "dry_run"} - {"method"}:
        assert re.search(rf"│ --{name.replace('_', '-')}\b", found.stdout)
    assert "--method" not in found.stdout
    assert "Defaults depend on METHOD and --data: these are for byol-mhe on digits." in found.stdout
    assert re.search(
        r"--micro-batch .*BatchNorm, .*negatives\s.*and the uniformity loss see only these", found.stdout, re.DOTALL
    )
    assert re.search(r"--energy FLOAT .*default: 10\.0", found.stdout)
    assert (
        found.stdout.count("(default: ") == len(config_type("byol").__dataclass_fields__) + 1
    )  # with resume and dry_run, without method


def test_on_a_mac_operators_that_its_gpu_lacks_run_on_the_cpu(monkeypatch, capsys):
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    main(["--version"])
    assert "PYTORCH_ENABLE_MPS_FALLBACK" not in os.environ
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "")  # so that it is restored
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK")
    main(["--version"])
    assert os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] == "1"


def test_help_needs_no_torch():
    code = """if True:
        import atexit, sys
        from hypersphere.cli import main

        atexit.register(lambda: print("torch" in sys.modules))
        main(["evaluate", "--help"])"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "False"
    for probe in EVERY_PROBE:
        assert probe in found.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "byol", *SMALL, "--epocsh", "3"], "--epocsh.*--epochs"),
        (["pretrain", "--epoch", "2", "byol", "--data", "digits"], r"unknown option --epoch: did you mean --epochs\?$"),
        (["pretrain", "--data", "digits", "--epochs", "0", "byol"], "--epochs must be at least 1, got 0"),
        (["pretrain", "byol", "--micro-batch", "3"], "--micro-batch must be a divisor of --batch 1024, got 3"),
        (["pretrain", "byol", "simclr"], r"unexpected argument: 'simclr' \(usage: hypersphere pretrain"),
        (
            ["pretrain", "byol", "--method", "simclr"],
            r"unknown option --method: give METHOD alone, as in hypersphere pretrain \[METHOD\] --data DATA$",
        ),
        (["pretrain", "byol", *SMALL, "--energy", "1", "--energy-layers", "target"], "layers in 'target' are frozen"),
        (["pretrain", "byol", *SMALL, "--device", "gpu"], r"--device gpu cannot be used here: choose one of [^()]*$"),
        (["pretrain", "byol", *SMALL, "--epochs", "three"], "--epochs must be an integer, got 'three'$"),
        (["pretrain", "byol", "--data", "cifar10", "--root", "/proc/x"], "cannot make the folder /proc/x"),
        (["pretrain", "bylo", *SMALL], "unknown method 'bylo'.*byol"),
        (["pretrain", "byol", *SMALL, "--energy", "-1"], "--energy must be at least 0, got -1.0"),
        (["pretrain", "byol", *SMALL, "--encoder", "torchvision/resnet19"], "resnet19.*did you mean .resnet18"),
        (["pretrain", "byol", *SMALL, "--energy", "1", "--energy-layers", "projektor"], "energy-layers.*projektor"),
        (["pretrain", "byol", *SMALL, "--batch", "4096"], "--batch 4096 is more than the 1137"),
        (["pretrain", "byol", *SMALL, "--device", "cuda:99"], "cuda:99"),
        (["pretrain", "byol", *SMALL, "--batch", "1"], "--batch must be at least 2"),
        (
            ["pretrain", "byol", *SMALL, "--encoder", "hypersphere/alexnet"],
            "alexnet does not accept the 1 × 8 × 8",
        ),
        (["pretrain", "byol", *SMALL, "--device", "meta"], "--device meta"),
        (["demo", "--out", "/proc/x"], "cannot make the folder /proc/x"),
        (["pretrain"], r"missing option --data: hypersphere pretrain \[METHOD\] --data DATA$"),
        (["pretrain", "."], r"'\.' is not a method: pass images as --data \.$"),
        (["pretrain", "byol", "/"], r"unexpected argument: '/' \(pass images as --data /\)$"),
        (["pretrain", "/", "byol"], r"unexpected argument: 'byol' \(pass images as --data /\)$"),
        (["pretrain", "byol", "--resume"], "--resume needs a value"),
        (["evaluate", "/no/such/run"], "run not found: /no/such/run does not exist"),
        (["evaluate"], "missing argument RUN: hypersphere evaluate RUN$"),
        (["demo", "byol"], "unexpected argument: 'byol'"),
        (["train"], r"unknown command 'train': did you mean pretrain\?$"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = in_this_process(capsys, *words)
    assert re.search(message, one_line(found))
    assert len(found.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_ends_a_real_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for found in (hypersphere("train"), completed("pretrain", "byol", *SMALL, "--batch", "4096")):
        one_line(found)
        assert len(found.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_one_may_not_enter(unbroken, tmp_path):
    (images := tmp_path / "in").mkdir()
    Image.new("RGB", (9, 9)).save(images / "a.png")
    (locked := tmp_path / "locked").mkdir(mode=0)
    commands = [
        ["pretrain", "byol", "--data", locked / "in"],
        ["pretrain", "byol", *SMALL, "--out", locked / "run"],
        ["pretrain", "--resume", locked / "run"],
        ["evaluate", locked / "run"],
        ["embed", unbroken, locked / "in", "-o", tmp_path / "vectors.npz"],
        ["embed", unbroken, images, "-o", locked / "vectors.npz"],
        ["neighbours", locked / "vectors.npz", images / "a.png"],
        ["export", unbroken, "--out", locked / "export"],
        ["report", unbroken, "-o", locked / "report.html"],
        ["diagnose", locked / "vectors.npy"],
    ]
    for found in without_privileges(*commands):
        assert f"permission denied for {locked}/" in one_line(found)
    locked.rmdir()  # nothing is in it


def test_where_a_terminal_knows_no_unicode(unbroken):
    words = ["evaluate", "--probes", "few-shot", "--holdout", "test", unbroken]
    found = completed(*words, prepare=write_ascii_alone)
    assert found.returncode == 0
    assert all(re.fullmatch(r"hypersphere: \d-shot: [\d.]+ %", line) for line in found.stderr.splitlines())
    assert "1-shot" in found.stdout
    ascii_alone = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    assert "'three'" in one_line(hypersphere("pretrain", "byol", "--epochs", "three", env=ascii_alone))


def test_ctrl_c_while_torch_loads_is_understood():
    code = """if True:
        import sys
        from hypersphere.cli import main
        assert "torch" not in sys.modules

        class Impatient:
            def find_spec(self, name, *_):
                if name == "torch":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Impatient())
        sys.exit(main(["pretrain", "byol"]))"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (130, "hypersphere: interrupted\n")


def test_a_checkpoint_that_does_not_fit_is_told_and_left_alone(unbroken, tmp_path, capsys):
    other = tmp_path / "other"
    assert in_this_process(capsys, *RUN, "--out", other, "--epochs", "1", "--hidden", "16").returncode == 0
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    checkpoint = folder / "checkpoint.pt"
    for damage, message in (
        ((other / "checkpoint.pt").read_bytes(), "of another architecture: projector.0.weight"),
        (checkpoint.read_bytes()[:10_000], "is damaged"),
    ):
        checkpoint.write_bytes(damage)
        for words in (["pretrain", "--resume", folder], ["evaluate", folder]):
            assert re.search(message, one_line(in_this_process(capsys, *words)))
            assert checkpoint.read_bytes() == damage
    message = one_line(in_this_process(capsys, "pretrain", "simclr", "--resume", unbroken))
    assert "its method is 'byol', not 'simclr'" in message
    words = ["pretrain", "--resume", unbroken, "--encoder", "torchvision/resnet18"]
    message = one_line(in_this_process(capsys, *words))
    assert "its encoder is 'hypersphere/digits', not 'torchvision/resnet18'" in message


def test_a_full_disk_is_told_and_the_checkpoint_before_is_whole(tmp_path):
    """The largest file allowed is smaller than a checkpoint: writing it fails midway, as on a full disk."""
    folder = tmp_path / "run"
    process = Process(*RUN, "--out", folder)
    wait_for_step(folder, 8, process)
    process.kill()
    process.communicate()
    before = (folder / "checkpoint.pt").read_bytes()
    limit = len(before) // 2

    found = completed("pretrain", "--resume", folder, prepare=partial(write_no_file_beyond, limit))
    assert re.search(r"could not write .*checkpoint.pt: File too large; the one before is untouched", one_line(found))
    assert (folder / "checkpoint.pt").read_bytes() == before
    assert not (folder / "checkpoint.pt.part").exists()


def test_a_really_full_disk(unbroken, tmp_path):
    """A file system with room for one checkpoint and a half."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = 3 * (unbroken / "checkpoint.pt").stat().st_size // 2
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        folder = disk / "run"
        message = one_line(completed(*RUN, "--out", folder))
        assert re.search(r"could not write .*: No space left on device", message)
        assert load_checkpoint(folder / "checkpoint.pt")["step"] == 7
        assert not (folder / "checkpoint.pt.part").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_mistake_of_one_process_alone_is_told(monkeypatch, capsys):
    """Of several on a machine the first tells what all did wrong; a launcher has ended the others by then."""
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    for place, told in (("0", "hypersphere: unknown --data"), ("1", "hypersphere: process 1: unknown --data")):
        environment = {"RANK": place, "WORLD_SIZE": "2", "LOCAL_RANK": place, "LOCAL_WORLD_SIZE": "2"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert main(["pretrain", "byol", "--data", "nothere"]) == 2
        assert capsys.readouterr().err.startswith(told)
    assert waited == [entry.LAUNCHER_DELAY]


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "byol", "--over", "lr=1,2", "--over", "seed=0,1"],
        ["evaluate", "run", "--probes", "knn", "--probes=few-shot"],
        ["pretrain", "byol", "--energy-layers", "projector", "--energy_layers", "predictor"],
    ],
)
def test_a_list_that_is_given_twice_is_refused(words, capsys):
    """It would be the last one alone."""
    assert main(words) == 2
    assert re.search(r"--[a-z-]+ is given twice: give all of its values at once", capsys.readouterr().err)


def test_threads_do_not_wait_busily_unless_the_user_wants_it(monkeypatch):
    """A command sets it before torch loads OpenMP: beside two other programs, two cores trained 4 times slower."""
    for given, wanted in (({}, "1000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)):
        with monkeypatch.context() as patch:
            for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
                patch.delenv(name, raising=False)
            for name, value in given.items():
                patch.setenv(name, value)
            patch.setitem(os.environ, "PYTORCH_ENABLE_MPS_FALLBACK", "1")
            assert main(["--version"]) == 0
            assert os.environ.get("GOMP_SPINCOUNT") == wanted
            os.environ.pop("GOMP_SPINCOUNT", None)
