"""A new method is one file and one line of the registry: it is then known everywhere."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError
from hypersphere.methods import METHODS, Batch
from hypersphere.methods.recipes import recipe_on
from hypersphere.runs.build import build_method, trainer_of
from hypersphere.runs.machine import training_execution
from hypersphere.sweeps.grid import results_in
from hypersphere.util.references import import_reference
from tests import test_config, test_public
from tests.methods import test_methods, test_runs
from tests.networks import SMALL_ENCODER

FILE = '''"""Toy (Nobody 2026): views of an image together, images apart."""

from dataclasses import dataclass

from torch import nn

from hypersphere.methods import Batch, Method, ProjectorOptions, Step, option
from hypersphere.nn import each_view, mlp
from hypersphere.sphere import alignment, uniformity


class Toy(Method):
    """Alignment, and a share of uniformity.

    Published nowhere.
    """

    @dataclass(frozen=True)
    class Options(ProjectorOptions):
        hidden: int = option(24, least=1)
        share: float = option(0.5, least=0, most=1)
        """Share of the uniformity in the loss."""

    recipes = {"default": {"lr": 0.7, "energy_layers": ("projector",)}, "digits": {"share": 0.25, "projection": 8}}

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = Options.hidden,
        projection: int = Options.projection,
        share: float = Options.share,
    ) -> None:
        super().__init__()
        self.encoder, self.share = encoder, share
        self.projector = mlp(features, hidden, projection)

    def forward(self, batch: Batch) -> Step:
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        loss = (1 - self.share) * alignment(z1, z2) + self.share * uniformity(z1)
        return self.step("toy", loss, z1, z2)
'''
SMALL = {"encoder": SMALL_ENCODER, "epochs": 1, "batch": 256, "knn_every": 0, "device": "cpu"}
WORDS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]


@pytest.fixture
def toy(own_folder, monkeypatch):
    """The file, and the line."""
    (own_folder / "own_nets.py").write_text(FILE)
    monkeypatch.setitem(METHODS, "toy", import_reference("own_nets:Toy"))


@pytest.mark.usefixtures("toy")
def test_its_recipe_is_found():
    config = recipe("toy-uni", "digits")
    assert (config.title, config.hidden, config.projection, config.share, config.lr) == ("toy-uni", 24, 8, 0.25, 0.008)
    assert (recipe("toy").lr, recipe("toy").share, recipe("toy").energy_layers) == (0.7, 0.5, ("projector",))
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert recipe("toy").replace(share=0.1).hash != recipe("toy").hash == recipe("toy", share=0.5).hash
    with pytest.raises(UserError, match=r"`share` is not an option of byol \(toy has it\)"):
        recipe("byol", share=0.5)
    with pytest.raises(UserError, match=r"`share` must be between 0 and 1, got 2\.0"):
        recipe("toy", share=2)


@pytest.mark.usefixtures("toy")
def test_the_command_line_knows_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        main(["pretrain", "toy", "--data", "digits", "--help"])
    shown = capsys.readouterr().out
    assert re.search(r"--share FLOAT +Share of the uniformity in the loss\. \(default: 0\.25\)", shown)
    assert "--tau" not in shown
    assert main(["methods"]) == 0
    assert "toy: Toy (Nobody 2026): views of an image together, images apart." in capsys.readouterr().out
    assert main(["methods", "toy-mhe"]) == 0
    assert "Published nowhere." in capsys.readouterr().out
    assert main(["pretrain", "toy", "--data", "digits", *WORDS, "--share", "0.3", "--out", "run"]) == 0
    assert hs.load_run("run").method.share == 0.3
    assert main(["pretrain", "byol", "--data", "digits", "--share", "0.3"]) == 2
    assert capsys.readouterr().err.endswith("hypersphere: --share is not an option of byol (toy has it)\n")


@pytest.mark.usefixtures("toy")
def test_it_trains_and_is_swept(capsys):
    run = hs.pretrain("toy-mhe", "digits", share=0.75, progress=False, **SMALL)
    assert (run.config.title, run.method.share) == ("toy-mhe", 0.75)
    assert {"toy", "regularizer"} <= run.metrics[-1].keys()
    words = ["--data", "digits", *WORDS, "--probes", "knn", "--workers", "0", "--out", "sweep"]
    assert main(["sweep", "toy", *words, "--share", "0.5", "--over", "method=toy,byol", "hidden=8,16"]) == 0
    assert "4 runs: 0 finished" in capsys.readouterr().out
    shares = [getattr(result.config, "share", None) for result in results_in(Path("sweep")).values()]
    assert sorted(shares, key=str) == [0.5, 0.5, None, None]
    found = hs.sweep(
        "toy", "digits", over={"method": ["byol", "toy"], "share": [0.1, 0.2]}, out="more", workers=0, **SMALL
    )
    assert len({result.hash for result in found}) == 3


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The file that own-method.md shows for a method of the project, registered as the page says."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "own-method.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "recipes = " in code)
    (tmp_path / "align_uniform.py").write_text(code)
    monkeypatch.setattr(hs.methods, "__path__", [*hs.methods.__path__, str(tmp_path)])
    module = import_module("hypersphere.methods.align_uniform")
    monkeypatch.setattr(hs.methods, "AlignUniform", module.AlignUniform, raising=False)
    monkeypatch.setitem(METHODS, "align_uniform", module.AlignUniform)
    yield module.AlignUniform
    del sys.modules[module.__name__], hs.methods.align_uniform


@pytest.mark.parametrize(
    "check",
    [
        test_config.test_every_option_is_explained,
        test_config.test_options_are_the_parameters_of_their_method,
        test_config.test_recipes_have_no_other_options,
        test_config.test_options_of_other_methods_are_refused,
        test_methods.test_a_method_learns_in_bfloat16_and_compiles,
        test_runs.test_on_imagenet_a_method_is_as_published,
        test_runs.test_energy_layers_name_what_a_method_has,
    ],
)
@pytest.mark.usefixtures("example")
def test_the_example_of_the_page_passes_the_checks_of_all_methods(check):
    check("align_uniform")


def test_the_example_of_the_page_is_listed_and_documented(example, capsys):
    test_public.test_docstrings_are_complete_and_their_examples_run("methods.AlignUniform", example)
    test_runs.test_the_methods_are_listed_in_their_own_words(capsys)


def test_the_example_of_the_page_learns(example):
    assert recipe_on(example, "default")["energy_layers"] == ("heads",)  # so that -mhe works without a word about it
    config = recipe("align_uniform-uni", "digits", hidden=32, projection=8, device="cpu")
    trainer = trainer_of(config, build_method(config, 1).train(), training_execution(config))
    pixels = hs.data.load_data("digits")[0].pixels[:64].float() / 255
    data = Batch((pixels, pixels + 0.1 * torch.randn_like(pixels)), torch.arange(64), None)
    losses = [trainer.update([data], 0.003, step / 20)["loss"].item() for step in range(20)]
    assert losses[-1] < losses[0] - 0.5


def test_help_of_the_bare_command_needs_no_methods():
    for words in (["--help"], ["--version"], ["nothing"], []):
        code = f"import sys; from hypersphere.cli import main; main({words!r}); print('torch' in sys.modules)"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert found.stdout.splitlines()[-1] == "False", words


def test_a_folder_with_the_name_of_a_method_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "byol-mhe").mkdir()
    assert hs.pretrain("byol-mhe", data="digits", dry_run=True).config.title == "byol-mhe"
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="'photos' is not a method: pass images as `data` photos"):
        hs.pretrain("photos")
