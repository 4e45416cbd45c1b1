"""Methods that users wrote: their recipes and options, in runs and sweeps, and what is wrong with them."""

import dataclasses
import json
import re
import sys

import pytest
import torch

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError
from hypersphere.methods import BYOL, METHODS, Method
from hypersphere.regularize import EnergyRegularizer
from hypersphere.report.page import _own_loss
from hypersphere.report.run_data import read_run_data
from hypersphere.runs.build import build_method, regularizer_of
from hypersphere.util.references import import_reference
from tests.networks import SMALL_ENCODER

METHOD = """
from hypersphere.methods import Method, Step
from hypersphere.nn import each_view, mlp
from hypersphere.sphere import alignment, uniformity
from torch import nn

class Mine(Method):
    'Views alike, projections apart.'

    def __init__(self, encoder, features, projection=8, share=0.5, kind="soft", deep=None):
        super().__init__()
        self.told = share, kind, deep
        self.encoder, self.projector = encoder, mlp(features, 16, projection)

    def forward(self, batch):
        z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        return self.step("mine", alignment(z1, z2) + uniformity(z1) / 2 + uniformity(z2) / 2, z1, z2)

class Small(nn.Sequential):
    num_features = 16

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())

class NoMethod(nn.Module):
    pass

class Unmade(Method):
    def __init__(self, encoder, features):
        self.encoder = encoder

    def forward(self, batch): ...

class Ungrouped(Mine):
    def parameter_groups(self):
        return self.parameters()

class Short(Method):
    def __init__(self, encoder):
        super().__init__()

    def forward(self, batch): ...
"""


def test_a_method_of_ones_own(own_folder, capsys):
    (own_folder / "own_nets.py").write_text(METHOD)
    words = ["--data", "digits", "--encoder", "own_nets:Small", "--epochs", "4"]
    assert main(["pretrain", "own_nets:Mine-uni-mhe", *words, "--tau", "0.9"]) == 2
    told = "--tau is not an option of own_nets:Mine (byol, moco, infomin, dino, obow have it)"
    assert capsys.readouterr().err == f"hypersphere: {told}\n"
    assert main(["pretrain", "own_nets:Mine-uni-mhe", *words, "--trust", "0.9"]) == 0
    (run,) = (own_folder / "runs").iterdir()
    assert run.name.startswith("Mine-uni-mhe-digits-")
    told = capsys.readouterr().err
    assert "hypersphere: ignored option trust: no effect on Mine-uni-mhe with digits" in told
    assert "hypersphere: Mine-uni-mhe: regularizes the weights of projector\n" in told
    metrics = hs.load_run(run).metrics
    assert {"mine", "uniformity", "regularizer"} <= next(line for line in metrics if "loss" in line).keys()
    losses = [line["mine"] for line in metrics if "mine" in line]
    assert losses[-1] < losses[0]
    assert main(["evaluate", str(run), "--probes", "knn"]) == 0
    assert main(["pretrain", "--resume", str(run)]) == 0
    assert main(["report", str(run), "--out", "page.html"]) == 0
    assert _own_loss(read_run_data(run, "cpu", None)) == "mine"  # and not the whole loss
    capsys.readouterr()
    assert main(["methods", "own_nets:Mine-mhe"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("own_nets:Mine-mhe\n\nViews alike, projections apart.\n\n")
    assert ", energy 10.0, energy_layers\n    heads, projection 8\n" in told
    again = hs.pretrain(import_reference("own_nets:Mine"), "digits", encoder="own_nets:Small", epochs=1, progress=False)
    assert again.config.method == "own_nets:Mine"
    assert again.config.energy == again.config.uniformity == 0


def test_a_sweep_notices_that_the_code_has_changed(own_folder, capsys):
    (own_folder / "own_nets.py").write_text(METHOD)
    command = ["sweep", "own_nets:Mine", "--data", "digits", "--encoder", "own_nets:Small", "--epochs", "1"]
    command += ["--over", "seed=0", "--probes", "knn"]

    def told(*more):
        main([*command, *more])
        return "".join(capsys.readouterr())

    assert "0 finished, 0 begun, 1 to start" in told("--workers", "0")
    assert "1 finished" in told("--dry-run")
    (own_folder / "own_nets.py").write_text(METHOD.replace("/ 2", "/ 3"))
    assert "0 finished, 0 begun, 1 to start" in told("--dry-run")
    (own_folder / "own_nets.py").write_text(METHOD)
    assert "1 finished" in told("--dry-run")
    assert "there is no module nets in this folder" in told("--dry-run", "--encoder", "nets:make")


MISTAKES = """
import torch
from hypersphere.methods import Method, Step
from hypersphere.nn import mlp

class Base(Method):
    def __init__(self, encoder, features, hidden=24, temperature=0.07, size=3, title="x"):
        super().__init__()
        self.encoder, self.projector = encoder, mlp(features, hidden, 4)
        self.told = hidden, temperature, size, title

class Right(Base):
    def forward(self, batch):
        loss = self.projector(self.encoder(batch.views[0])).square().mean()
        return Step(loss, {"loss": loss.detach() + 1, "step": loss.detach()})

class Bare(Base):
    def forward(self, batch):
        return torch.zeros((), requires_grad=True)

class Long(Base):
    def forward(self, batch):
        return Step(self.projector(self.encoder(batch.views[0])).sum(0), {})

class Idle(Base):
    def forward(self, batch):
        return Step(torch.zeros(()), {})

class Numbers(Base):
    def forward(self, batch):
        return Step(self.projector(self.encoder(batch.views[0])).sum(), {"a": 1.0})

class Nothing(Base):
    def forward(self, batch):
        return self.step("nothing", self.projector(self.encoder(batch.views[0])).sum())

class Needs(Right):
    def __init__(self, encoder, features, gamma):
        super().__init__(encoder, features)

class Careless(Right):
    def __init__(self, encoder, features):
        Method.__init__(self)

def array(path): ...
"""


def test_a_methods_own_defaults_count(own_folder):
    (own_folder / "own_nets.py").write_text(MISTAKES)
    options = {"data": "digits", "encoder": SMALL_ENCODER, "epochs": 1, "progress": False, "log_every": 1}
    run = hs.pretrain("own_nets:Right", **options)
    assert run.method.told == (24, 0.07, 3, "x")
    assert hs.pretrain("own_nets:Right", hidden=9, temperature=0.2, **options).method.told[:2] == (9, 0.2)
    steps = [line for line in run.metrics if "lr" in line]
    assert [line["step"] for line in steps] == list(range(1, run.step + 1))
    assert hs.pretrain("own_nets:Needs", gamma=2, **options).step == run.step


@pytest.mark.parametrize("data", ["cifar10", "digits", "stl10", "imagenet", "imagenette"])
def test_what_derives_from_a_method_of_ours_has_its_recipe(own_folder, data):
    """But for what an `__init__` of its own says."""
    lines = ["from hypersphere.methods import *"]
    for name, kind in METHODS.items():
        lines += [f"class Plain_{name}({kind.__name__}): ...", f"class Again_{name}(Plain_{name}):"]
        lines += ["    def __init__(self, encoder, features, hidden=7, tau=0.5, queue=9): ..."]
    (own_folder / "own_nets.py").write_text("\n".join(lines))
    for name in METHODS:
        for variant in ("", "-uni", "-mhe"):
            ours = recipe(name + variant, data)
            plain, again = (recipe(f"own_nets:{kind}_{name}{variant}", data) for kind in ("Plain", "Again"))
            assert plain == ours.replace(method=f"own_nets:Plain_{name}")
            assert again == ours.replace(method=f"own_nets:Again_{name}", hidden=7, tau=0.5, queue=9)


HEADS = """
class Headless(Method):
    def __init__(self, encoder, features):
        super().__init__()
        self.encoder = encoder

    def forward(self, batch): ...

class Headed(Headless):
    def __init__(self, encoder, features):
        super().__init__(encoder, features)
        self.projector, self.predictor, self.odd = mlp(features, 16, 8), mlp(8, 16, 8), nn.Linear(features, 4)
        self.frozen, self.norm = mlp(8, 16, 8).requires_grad_(False), nn.BatchNorm1d(8)
"""


def test_the_energy_is_that_of_every_head_there_is(own_folder):
    """Against the layers that a regularizer of the whole network finds."""
    (own_folder / "own_nets.py").write_text(METHOD + HEADS)
    for name in ("Mine", "Headed", "Headless"):
        config = recipe(f"own_nets:{name}-mhe", "digits")
        method = build_method(config, 1)
        every = EnergyRegularizer(method).per_layer()
        heads = {layer for layer in every if not layer.startswith("encoder")}
        assert regularizer_of(config, method).per_layer().keys() == (heads or every.keys())
    byol = recipe("byol-mhe", "digits")
    method = build_method(byol, 1)
    one, other = (regularizer_of(config, method) for config in (byol, byol.replace(energy_layers=("heads",))))
    assert one.per_layer() == other.per_layer()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Bare", "forward of Bare must return Step"),
        ("Long", "forward of Long must return Step"),
        ("Idle", "returned a loss that does not depend on any weight"),
        ("Numbers", "its term a must be a tensor of one number"),
        ("Nothing-uni", "Nothing passes no projections to self.step"),
        ("Base", "own_nets:Base must implement forward"),
        ("Needs", "own_nets:Needs has no default for its option --gamma: pass a value"),
        ("Careless", "must set self.encoder to the network that it gets"),
    ],
)
def test_mistakes_in_a_method_are_told(own_folder, capsys, name, told):
    (own_folder / "own_nets.py").write_text(MISTAKES)
    assert main(["pretrain", f"own_nets:{name}", "--data", "digits", "--epochs", "1"]) == 2
    assert told in capsys.readouterr().err


def test_mistakes_in_modules_are_told(own_folder, capsys):
    (own_folder / "own_nets.py").write_text(MISTAKES)
    assert main(["pretrain", "byol", "--data", "own_nets:array"]) == 2
    assert "own_nets:array must be a function that takes no arguments (missing" in capsys.readouterr().err
    sys.modules.pop("own_nets")
    (own_folder / "own_nets.py").write_text("def f(:")
    assert main(["pretrain", "own_nets:f", "--data", "digits"]) == 2
    assert "syntax error in own_nets: " in capsys.readouterr().err


def test_our_classes_are_known_by_their_names(own_folder):
    (own_folder / "own_nets.py").write_text(METHOD)
    small = {"encoder": "own_nets:Small", "epochs": 1}
    run = hs.pretrain(BYOL, data="digits", hidden=16, progress=False, **small)
    assert run.config.method == "byol"
    mine = import_reference("own_nets:Mine")
    options = {**small, "probes": ["knn"], "out": "sweep"}
    found = hs.sweep(mine, "digits", over={"method": [BYOL, mine]}, workers=0, hidden=16, **options)
    assert [result.config.method for result in found] == ["byol", "own_nets:Mine"]
    (apart,) = hs.sweep(mine, "digits", over={"seed": [1]}, workers=1, **options)  # in a process of its own
    assert apart.config.method == "own_nets:Mine"


OWN = ["pretrain", "own_nets:Mine", "--data", "digits", "--encoder", SMALL_ENCODER, "--epochs", "1", "--out", "run"]


def test_options_that_only_ones_own_method_has(own_folder, capsys):
    (own_folder / "own_nets.py").write_text(METHOD)
    assert main([*OWN, "--share", "0.25", "--kind=hard", "--deep", "3"]) == 0
    run = hs.load_run("run")
    assert run.method.told == (0.25, "hard", 3)
    options = {"share": 0.25, "kind": "hard", "deep": 3}
    twin = hs.pretrain("own_nets:Mine", data="digits", encoder=SMALL_ENCODER, epochs=1, progress=False, **options)
    assert twin.config.hash == run.config.hash != recipe("own_nets:Mine", "digits", encoder=SMALL_ENCODER).hash
    assert hs.load_run(twin.path).method.told == (0.25, "hard", 3)
    listed = run.config.replace(deep=[1, (2, "a")])
    assert build_method(listed, 1).told[2] == Config.from_json(json.loads(json.dumps(listed.to_json()))).deep
    for words, told in (
        (["--shar", "1"], "unknown option --shar: did you mean --share"),
        (["--share", "much"], "--share.*'much'"),
        (["--queue", "8"], r"--queue is not an option of own_nets:Mine \(moco, infomin have it\)"),
        (["--hidden", "8"], "--hidden is not an option of own_nets:Mine"),
    ):
        assert main([*OWN, *words]) == 2
        assert re.search(told, capsys.readouterr().err)
    with pytest.raises(UserError, match="`share` must be a number, got 'much'"):
        hs.pretrain("own_nets:Mine", "digits", share="much")
    with pytest.raises(UserError, match="`deep` must be a number, a string, True, False, None or a list of them"):
        hs.pretrain("own_nets:Mine", "digits", deep={1: 2})
    with pytest.raises(SystemExit):
        main(["pretrain", "own_nets:Mine", "--help"])
    assert re.search(r"--share FLOAT +\(default: 0.5\)", capsys.readouterr().out)


def test_options_of_ones_own_method_can_be_swept(own_folder):
    (own_folder / "own_nets.py").write_text(METHOD)
    over = {"method": ["own_nets:Mine", "byol"], "share": [0.5, 0.25]}
    small = {"encoder": SMALL_ENCODER, "epochs": 1, "probes": ["knn"], "workers": 0}
    found = hs.sweep("byol", "digits", over=over, hidden=16, **small)
    assert [getattr(result.config, "share", None) for result in found] == [0.5, 0.25, None, None]
    assert found[2] == found[3]
    with pytest.raises(UserError, match=r"^unknown option 'shere': did you mean 'share'"):
        hs.sweep("own_nets:Mine", "digits", over={"shere": [1]}, **small)


def test_the_removed_option_extra_of_a_run_is_read_as_options_of_its_method(own_folder):
    (own_folder / "own_nets.py").write_text(METHOD)
    config = recipe("own_nets:Mine", "digits")
    saved = config.to_json()
    assert Config.from_json({**saved, "extra": []}).hash == config.hash
    del saved["share"]
    assert Config.from_json({**saved, "extra": ["share=0.25"]}).share == 0.25
    with pytest.raises(UserError, match="share"):
        Config.from_json({**saved, "extra": ["share=much"]})


DECLARED = '''
from dataclasses import dataclass
from typing import Annotated
from hypersphere.methods import BYOL, Limits, option

class Declared(BYOL):
    @dataclass(frozen=True)
    class Options(BYOL.Options):
        tau: float = option(0.5, least=0, most=1)
        margin: float = option(0.2, above=0)
        "How far apart."

    def __init__(self, encoder, features, margin=0.2, **options):
        super().__init__(encoder, features, **options)
        self.margin = margin

class Passing(BYOL):
    def __init__(self, encoder, features, margin: float = 0.2, **options):
        super().__init__(encoder, features, **options)
        self.margin = margin

class Documented(BYOL):
    """How far apart.

    Args:
        margin: Distance of two
            views.

            In radians.
        times (int): Rounds.
    Example:
        tau: None.
    """

    def __init__(
        self,
        encoder,
        features,
        margin: Annotated[float, Limits(above=0)] = 0.2,
        times: Annotated[int, Limits(least=2, most=3)] | None = None,
        tau: float = 0.5,
        **options,
    ):
        super().__init__(encoder, features, tau=tau, **options)
        self.margin, self.times = margin, times

class Thawed(BYOL):
    @dataclass
    class Options:
        margin: float = 0.2
'''


def test_options_may_be_declared_or_passed_on_to_a_method_of_ours(own_folder, capsys):
    (own_folder / "own_nets.py").write_text(DECLARED)
    ours = vars(recipe("byol", "stl10"))
    for name, tau in (("Declared", 0.5), ("Passing", 0.996)):
        config = recipe(f"own_nets:{name}", "stl10", margin=1)
        assert vars(config) == {**ours, "method": f"own_nets:{name}", "tau": tau, "margin": 1.0}
        method = build_method(recipe(f"own_nets:{name}", "digits", norm="none", hidden=9, margin=3), 1)
        assert (method.margin, method.projector[0].out_features) == (3.0, 9)
        assert not any(isinstance(layer, torch.nn.BatchNorm1d) for layer in method.projector)
    with pytest.raises(UserError, match=r"`margin` must be above 0, got 0\.0"):
        recipe("own_nets:Declared", margin=0)
    with pytest.raises(SystemExit):
        main(["pretrain", "own_nets:Declared", "--help"])
    assert re.search(r"--margin FLOAT +How far apart. \(default: 0.2\)", capsys.readouterr().out)
    with pytest.raises(UserError, match=r"Thawed\.Options must be a frozen dataclass"):
        recipe("own_nets:Thawed")


def test_the_docstring_and_the_types_of_init_are_help_and_limits(own_folder, capsys):
    (own_folder / "own_nets.py").write_text(DECLARED)
    config = recipe("own_nets:Documented", "digits", margin=1, times=3)
    assert vars(config) == {
        **vars(recipe("byol", "digits")),
        "method": "own_nets:Documented",
        "margin": 1.0,
        "times": 3,
        "tau": 0.5,
    }
    method = build_method(config, 1)
    assert (method.margin, method.times, method.tau) == (1.0, 3, 0.5)
    for options, told in (
        ({"margin": 0}, "`margin` must be above 0, got 0.0"),
        ({"times": 4}, "`times` must be between 2 and 3, got 4"),
        ({"times": 2.5}, "`times` must be a whole number, got 2.5"),
    ):
        with pytest.raises(UserError, match=re.escape(told)):
            recipe("own_nets:Documented", **options)
    with pytest.raises(SystemExit):
        main(["pretrain", "own_nets:Documented", "--data", "digits", "--help"])
    shown = capsys.readouterr().out
    for line in (
        r"--margin FLOAT +Distance of two views\. \(default: 0\.2\)",
        r"--times INT +Rounds\. \(default: None\)",
        r"--tau FLOAT +Decay of the target's moving average at the start",  # of BYOL
    ):
        assert re.search(line, shown)


def test_options_need_no_docstrings(monkeypatch):
    """Which python -OO removes."""
    before = dataclasses.fields(BYOL.Options)
    monkeypatch.setattr(BYOL, "__doc__", None)
    after = dataclasses.fields(BYOL.Options)
    assert [(one.name, one.type, one.default) for one in after] == [(one.name, one.type, one.default) for one in before]
    assert {one.metadata["help"] for one in after} == {""}


def test_saved_configs_are_read_without_the_code_of_their_method(own_folder, monkeypatch):
    """Whose options count as they were saved."""
    (own_folder / "own_nets.py").write_text(METHOD)
    saved = recipe("own_nets:Mine", "digits", share=0.25).to_json()
    before = Config.from_json(saved)
    sys.modules.pop("own_nets")
    monkeypatch.setattr("hypersphere.util.references._ALLOWED", set())
    bare = Config.from_json(saved).replace(epochs=3)
    assert "own_nets" not in sys.modules
    assert not hasattr(bare, "share")
    assert bare.to_json() == {**saved, "epochs": 3}
    (own_folder / "own_nets.py").unlink()
    assert Config.from_json(saved).to_json() == before.to_json() == saved
    with pytest.raises(UserError, match="there is no module own_nets"):
        build_method(bare, 1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("own_nets:NoMethod", "must be a subclass of hypersphere.methods.Method"),
        ("math:pi", "math:pi must be a subclass of hypersphere.methods.Method"),
        ("own_nets:Short", "its __init__ must take features"),
        ("own_nets:Unmade", "own_nets:Unmade: its __init__ must call super().__init__() first"),
        ("own_nets:Ungrouped", "parameter_groups of Ungrouped must return a list of dicts, each with params"),
        ("own_nets:mine", "there is no mine in own_nets: did you mean 'Mine'"),
        ("byool", "your own as package.module:Class"),
    ],
)
def test_what_is_no_method_is_told(own_folder, capsys, name, told):
    (own_folder / "own_nets.py").write_text(METHOD)
    assert main(["pretrain", name, "--data", "digits"]) == 2
    assert told in capsys.readouterr().err


def test_a_class_in_a_function_is_refused():
    class Hidden(Method):
        def forward(self, batch): ...

    with pytest.raises(UserError, match="Hidden must be at the top level of a module"):
        hs.pretrain(Hidden, data="digits")
