"""Words of the command line: what they mean, what is refused, what the help shows."""

import dataclasses
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import pytest
from tyro.conf import Positional, arg

from hypersphere.cli import main
from hypersphere.cli.commands import COMMANDS, Command, arguments
from hypersphere.cli.embed import EmbedOptions
from hypersphere.cli.help import argument_name, is_argument
from hypersphere.cli.parsing import OPTIONAL_VALUE, parse
from hypersphere.cli.pretrain import FIRST, GROUPS, PretrainOptions, parse_run_options
from hypersphere.errors import UserError, as_command_line


@dataclasses.dataclass(frozen=True)
class Every:
    """One option of each kind."""

    first: Annotated[str, Positional, arg(metavar="FIRST")]
    """First argument."""
    rest: Annotated[tuple[str, ...], Positional, arg(metavar="REST …")]
    """The others."""
    out: Annotated[Path, arg(aliases=["-o"])] = Path("out")
    """Where to write."""
    epochs: int | None = None
    """How long,
    on a second line."""
    lr: float = 0.1
    """Learning rate."""
    kind: Literal["soft", "hard"] = "soft"
    """A choice."""
    layers: tuple[str, ...] = ()
    """A list."""
    areas: tuple[float, ...] = ()
    """Numbers."""
    half_space: bool = False
    """A flag."""
    ray: Annotated[str | None, OPTIONAL_VALUE] = None
    """With or without a value."""


@pytest.fixture(autouse=True)
def every(monkeypatch):
    monkeypatch.setitem(COMMANDS, "every", Command("test", "FIRST REST …", "Try every kind of option"))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("a b", {}),
        ("a b --epochs 3", {"epochs": 3}),
        ("--epochs 3 a b", {"epochs": 3}),
        ("a --epochs=3 b", {"epochs": 3}),
        ("a b --epochs None", {}),
        ("a b --epochs 1 --epochs 2", {"epochs": 2}),
        ("-o x a b", {"out": Path("x")}),
        ("a b -o x", {"out": Path("x")}),
        ("a b --out=x", {"out": Path("x")}),
        ("a b --lr -1", {"lr": -1.0}),
        ("a b --lr 1e-3", {"lr": 0.001}),
        ("a b --kind hard", {"kind": "hard"}),
        ("a b --layers x y --lr 1", {"layers": ("x", "y"), "lr": 1.0}),
        ("--layers x y --lr 1 a b", {"layers": ("x", "y"), "lr": 1.0}),
        ("a b --areas 0.1 1", {"areas": (0.1, 1.0)}),
        ("--half-space a b", {"half_space": True}),
        ("a b --half_space", {"half_space": True}),
        ("a b --half-space --no-half-space", {}),
        ("a b --ray", {"ray": ""}),
        ("a b --ray --lr 1", {"ray": "", "lr": 1.0}),
        ("--ray host:1 a b", {"ray": "host:1"}),
        ("a b --ray=", {"ray": ""}),
    ],
)
def test_options_stand_before_between_and_after_arguments(words, wanted):
    assert parse("every", Every, words.split()) == Every("a", ("b",), **wanted)


def test_a_list_of_arguments_may_be_interrupted_by_options():
    assert parse("every", Every, ["a", "b", "--lr", "1", "c", "-o", "x", "d"]) == Every(
        "a", ("b", "c", "d"), Path("x"), lr=1.0
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "missing argument FIRST: hypersphere every FIRST REST …"),
        ("a", "missing argument REST: hypersphere every FIRST REST …"),
        ("a b --epocs 3", "unknown option --epocs: did you mean --epochs?"),
        ("--epocs 3 a b", "unknown option --epocs: did you mean --epochs?"),
        ("--epocs=3 a b", "unknown option --epocs: did you mean --epochs?"),
        ("a b --no-half-spaec", "unknown option --no-half-spaec: did you mean --no-half-space?"),
        ("a b --zzz", "unknown option --zzz"),
        ("a b --first c", "unknown option --first: give FIRST alone, as in hypersphere every FIRST REST …"),
        ("a b --epochs", "--epochs needs a value"),
        ("a b --epochs --lr 3", "--epochs needs a value"),
        ("--out --half-space a b", "--out needs a value"),
        ("a b -o", "-o needs a value"),
        ("a b --layers", "--layers needs a value"),
        ("a b --epochs three", "--epochs must be an integer, got 'three'"),
        ("a b --epochs 3.5", "--epochs must be an integer, got '3.5'"),
        ("a b --lr fast", "--lr must be a number, got 'fast'"),
        ("a b --areas 1 wide", "--areas must be a number, got '1 wide'"),
        ("a b --kind firm", "--kind must be one of soft, hard, got 'firm'"),
        ("a b --layers x --lr 1 --layers y", "--layers is given twice: give all of its values at once"),
        ("a b --ray --epochs", "--epochs needs a value"),
        ("a b --ray --epochs x", "--epochs must be an integer, got 'x'"),
    ],
)
def test_a_mistake_is_one_line(words, message):
    with pytest.raises(UserError) as error:
        parse("every", Every, words.split())
    assert as_command_line(str(error.value)) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embed run", "missing argument IMAGES: hypersphere embed RUN IMAGES -o FILE"),
        ("embed run images", "missing option --out: hypersphere embed RUN IMAGES -o FILE"),
        ("embed run images more -o x.npz", "unexpected argument: 'more' (usage: hypersphere embed RUN IMAGES -o FILE)"),
        ("pretrain byol --predictor none", "unexpected argument: 'none' (usage: hypersphere pretrain "),
        ("pretrian byol", "unknown command 'pretrian': did you mean pretrain?"),
        ("xyzzy", "unknown command 'xyzzy': hypersphere --help lists all commands"),
        ("evaluate RUN --probes knn kmm", "--probes must be one of linear, linear-cached, knn, few-shot, fine-tune, "),
    ],
)
def test_commands_tell_mistakes_on_standard_error(words, message, capsys):
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"hypersphere: {message}")
    assert printed.err.count("\n") == 1


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Arguments that are numbers."""

    points: Annotated[int, Positional, arg(metavar="N")]
    sides: Annotated[tuple[float, ...], Positional, arg(metavar="[SIDE …]")] = ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "missing argument N: hypersphere every FIRST REST …"),
        ("three", "N must be an integer, got 'three'"),
        ("3 1.5 wide", "SIDE must be a number, got '1.5 wide'"),
        ("3 --points 4", "unknown option --points: give N alone, as in hypersphere every FIRST REST …"),
    ],
)
def test_a_mistake_names_an_argument_by_its_metavar(words, message):
    with pytest.raises(UserError) as error:
        parse("every", Numbers, words.split())
    assert as_command_line(str(error.value)) == message


def test_an_argument_is_no_option_in_later_errors(capsys):
    assert main(["data", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("hypersphere: unknown DATA 'nothing' (it is neither a file")
    assert main(["pretrain", "byol", "--data", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("hypersphere: unknown --data 'nothing' (it is neither a file")


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "every"])
def test_the_usage_has_the_arguments_by_their_metavars(command):
    module = importlib.import_module(f"hypersphere.cli.{command}")
    hints = get_type_hints(getattr(module, f"{command.capitalize()}Options"), include_extras=True)
    assert {argument_name(name, hint) for name, hint in hints.items() if is_argument(hint)} == arguments(command)


def test_o_is_short_for_out():
    for words in ("run in -o x.npz", "-o x.npz run in", "run --out x.npz in"):
        assert parse("embed", EmbedOptions, words.split()) == EmbedOptions("run", "in", Path("x.npz"))


def test_only_what_is_given_overrides_a_recipe():
    words = ["--no-predictor", "--epochs", "3", "byol", "--energy-layers", "projector", "predictor", "--data", "digits"]
    wanted = {"method": "byol", "predictor": False, "epochs": 3, "data": "digits"}
    assert parse_run_options("pretrain", PretrainOptions, words) == {
        **wanted, "energy_layers": ("projector", "predictor")
    }  # fmt: skip
    assert parse_run_options("pretrain", PretrainOptions, ["--help"]) == {}


def documented():
    """The commands in the shell blocks of the documentation, without their comments."""
    root = Path(__file__).parents[2]
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                match = re.search(r"(?:^|-m )hypersphere (\w.*?)(?: &)?(?: #.*)?$", line)
                if match and "my_methods:" not in line:  # a class that the page defines; `make docs` runs it
                    yield match[1]


@pytest.mark.parametrize("line", dict.fromkeys(documented()))
def test_every_documented_command_is_understood(line):
    command, *words = shlex.split(line)
    words = [word for word in words if word != "--help"]
    module = importlib.import_module(f"hypersphere.cli.{command}")
    options = getattr(module, f"{command.capitalize()}Options")
    if command in ("pretrain", "sweep", "speedrun"):
        assert parse_run_options(command, options, words)
    else:
        assert parse(command, options, words)


def test_documented_commands_are_found():
    assert len({line.split()[0] for line in documented()} & {*COMMANDS}) >= 10


def test_every_group_of_the_help_has_options_that_exist():
    from hypersphere.config import option_names
    from hypersphere.methods import METHODS

    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len({*grouped})
    assert not {*grouped} & {*FIRST}
    assert {*grouped, *FIRST} <= {*set().union(*map(option_names, METHODS)), "resume", "dry_run"}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_fits_and_explains_every_option(command, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code in (0, None)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith(f"usage: hypersphere {command} [-h]")
    assert "\x1b" not in printed.out  # no colours where nobody looks
    _, *lines = printed.out.splitlines()  # the terminal wraps the usage
    assert max(map(len, lines)) <= columns
    options = re.split(r"^│ (?=-|[A-Z\[])", printed.out, flags=re.MULTILINE)[1:]
    for option in options:
        text = re.sub(r"[^\w…]+", " ", re.sub(r"\((default|required|optional).*", "", option, flags=re.DOTALL))
        assert len(text.split()) > 2, f"no help: {option}"


def test_the_help_joins_lines_and_shows_defaults(capsys):
    with pytest.raises(SystemExit):
        parse("every", Every, ["a", "--unknown", "-h"])
    shown = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "One option of each kind." in shown
    for words in (
        "FIRST First argument. (required)",
        "-o PATH, --out PATH Where to write. (default: out)",
        "--epochs INT How long, on a second line. (default: None)",
        "--kind {soft,hard} A choice. (default: soft)",
        "A list. (default: none)",
    ):
        assert words in shown


def without_torch(*words, **environment):
    """What a fresh process prints, and whether it has loaded torch."""
    code = f"""if True:
        import sys
        from hypersphere.cli import main

        try:
            status = main({list(words)!r})
        except SystemExit as stop:
            status = stop.code or 0
        print("torch" in sys.modules, status)"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    *shown, last = found.stdout.splitlines()
    loaded, status = last.split()
    assert loaded == "False", words
    return int(status), shown, found.stderr


def test_the_bare_command_shows_five_things_to_do():
    status, shown, _ = without_torch()
    assert status == 0
    steps = [line.split() for line in shown if line.startswith("  hypersphere ")]
    assert len(steps) == 5
    assert all(step[1] in COMMANDS for step in steps)
    assert shown[-1] == "hypersphere --help lists all commands."
    assert max(map(len, shown)) <= 80


def test_all_commands_are_listed_in_groups():
    for word in ("--help", "-h", "help"):
        status, shown, _ = without_torch(word)
        assert status == 0
        assert [line[:-1] for line in shown if re.fullmatch(r"\w+:", line)] == ["train", "measure", "use", "research"]
        listed = [line.split()[0] for line in shown if line.startswith("  ")]
        assert [*listed, "every"] == list(COMMANDS)
        assert max(map(len, shown)) <= 80


@pytest.mark.parametrize("words", [["--version"], ["trian"], ["evaluate"], ["evaluate", "--help"], ["embed", "--out"]])
def test_answers_that_need_no_torch(words):
    status, _, told = without_torch(*words)
    assert status == (0 if "-" in words[-1][:1] and words[-1] != "--out" else 2)
    assert "Traceback" not in told


def test_a_new_command_is_one_file_and_one_line(tmp_path, monkeypatch, capsys):
    """The file and the line that CONTRIBUTING.md shows."""
    import hypersphere.cli

    guide = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    file, line = re.search(r"A new command.*?```python\n(.*?)```.*?```python\n(.*?)```", guide, re.DOTALL).groups()
    (tmp_path / "greet.py").write_text(file)
    monkeypatch.setattr(hypersphere.cli, "__path__", [*hypersphere.cli.__path__, str(tmp_path)])
    monkeypatch.setitem(COMMANDS, "greet", eval(f"{{{line}}}", {"Command": Command})["greet"])
    try:
        assert main(["greet", "--times", "2", "Ada"]) == 0
        assert capsys.readouterr().out == "hello, hello Ada\nnext: hypersphere demo\n"
        assert main(["greet", "--times", "0", "Ada"]) == 2
        assert capsys.readouterr().err == "hypersphere: --times must be at least 1, got 0\n"
        assert main(["greet"]) == 2
        assert capsys.readouterr().err == "hypersphere: missing argument NAME: hypersphere greet NAME\n"
        assert main(["gret"]) == 2
        assert "did you mean greet?" in capsys.readouterr().err
        main(["--help"])
        assert re.search(r"^  greet +Greet somebody$", capsys.readouterr().out, re.MULTILINE)
        with pytest.raises(SystemExit):
            main(["greet", "--help"])
        assert re.search(r"--times INT +How often\. \(default: 1\)", capsys.readouterr().out)
    finally:
        sys.modules.pop("hypersphere.cli.greet", None)
