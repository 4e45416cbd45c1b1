"""The page of some runs: what it says, from whatever state a run is in; and in a real browser."""

import dataclasses
import json
import math
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.cli.parsing import parse
from hypersphere.data import SOURCES, Images
from hypersphere.data.named_datasets import Source
from hypersphere.report.chart import Line
from hypersphere.report.page import _dynamics, write_report
from hypersphere.report.run_data import read_run_data
from hypersphere.report.tables import evaluated
from hypersphere.report.templating import render
from hypersphere.train import read_metrics
from tests.networks import SMALL_ENCODER
from tests.tree import Tree

SMALL = {"encoder": SMALL_ENCODER, "epochs": 2, "hidden": 32, "projection": 8, "knn_every": 1, "log_every": 1}
SMALL |= {"device": "cpu", "progress": False}
NASTY = """<img src=x onerror=alert(1)>&"'$title"""
SECTIONS = ["Summary", "Accuracy, uniformity and loss", "Energy by layer", "On the circle", "Nearest neighbours",
            "Map of the embeddings", "Configs"]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    plain = hs.pretrain("byol", "digits", out=folder / NASTY, **SMALL)
    plain.evaluate(["knn", "few-shot"])
    other = hs.pretrain("byol-mhe", "digits", out=folder / "mhe", **SMALL)
    return [plain.path, other.path]


@pytest.fixture(scope="module")
def file(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(runs, out, "cpu")
    return out


@pytest.fixture(scope="module")
def tree(file):
    return Tree(file.read_text())


def report(runs, tmp_path, **options):
    out = tmp_path / "report.html"
    write_report(runs, out, "cpu", **options)
    return Tree(out.read_text())


@pytest.fixture
def copy(runs, tmp_path):
    """One's own copy of the run that is regularized, which is not evaluated."""
    return shutil.copytree(runs[1], tmp_path / "run")


def energies(run):
    """What was measured of blocks and weights: a panel each, after the first four."""
    return [name for name in next(line for line in read_metrics(run / "metrics.jsonl") if "knn" in line) if "/" in name]


def test_the_page_has_all_its_parts_in_order(tree, runs):
    assert tree.said("title")[0] == "Report of byol, byol-mhe"
    assert tree.said("h1") == ["Report of byol, byol-mhe"]
    assert tree.said("h2") == SECTIONS
    kinds = ("panel", "circle", "neighbours", "map")
    assert [len(tree.of("figure", kind)) for kind in kinds] == [4 + len(energies(runs[1])), 2, 2, 2]
    for attributes in tree.of("svg"):
        assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"


def test_the_page_asks_for_nothing_outside_itself(file):
    text = file.read_text()
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:|#)", text)
    assert not re.search(r"url\((?!data:)|@import|https?:", text)


def test_the_summary_has_the_numbers_of_the_files(tree, runs):
    last = [line for line in read_metrics(runs[0] / "metrics.jsonl") if "knn" in line][-1]
    found = json.loads((runs[0] / "evaluation.json").read_text())["validation"]
    cells = tree.said("td")[:8]
    few = [f"{found[name]['top1']:.1f} ± {found[name]['interval']:.1f}" for name in ("1-shot", "5-shot")]
    wanted = ["digits", "2 of 2", f"{last['knn']:.1f}", f"{last['uniformity_of_features']:.2f}".replace("-", "−")]
    assert cells[:7] == [*wanted, *few, f"{found['knn']['top1']:.1f}"]
    assert "1-shot, validation" in tree.said("th")
    assert ": not evaluated: there is no evaluation.json" in tree.said("li")


def test_curves_are_those_of_the_metrics(tree, runs):
    titles = [a["aria-label"].partition(",")[0] for a in tree.of("svg") if a.get("viewbox") == "0 0 360 230"]
    of = {"energy": "Block", "energy_of_weights": "Weights", "gradient_ratio": "Gradient"}
    blocks = [f"{of[name.partition('/')[0]]}: {name.partition('/')[2]}" for name in energies(runs[1])]
    assert titles[:4] == ["k-NN accuracy", "Uniformity of features", "Training loss", "Loss between the views"]
    assert sorted(titles[4:]) == sorted(blocks)
    assert titles[4:].index("Block: output") == sum(title.startswith("Block") for title in titles) - 1
    lines = [len(a["points"].split()) for a in tree.of("polyline", "line")]
    steps = sum("loss" in line for line in read_metrics(runs[0] / "metrics.jsonl"))
    assert lines == [2] * 4 + [steps] * 4 + [2] * (len(energies(runs[0])) + len(blocks))
    values = [line["knn"] for line in read_metrics(runs[1] / "metrics.jsonl") if "knn" in line]
    assert f"byol-mhe, epoch 2: {values[-1]:.4g}" in tree.said("title")


def test_the_verdict_of_diagnose_is_at_the_top(tree, runs):
    said = tree.said("p")
    found = hs.diagnose(read_run_data(runs[1], "cpu", None).seen.features)
    rank = next(finding.sentence for finding in found.findings if finding.name == "effective rank")
    last = [line for line in read_metrics(runs[1] / "metrics.jsonl") if "knn" in line]
    start = last[0]["knn_at_start"]
    wanted = [found.verdict.partition(":")[0].capitalize(), f"Effective rank: {rank}."]
    wanted.append(f"k-NN accuracy {last[-1]['knn']:.1f} %, with a random encoder {start:.1f} %.")
    assert any(all(words in text for words in wanted) for text in said)


def test_losses_of_different_methods_have_their_own_axes(runs):
    found = [read_run_data(run, "cpu", None) for run in runs]
    other = dataclasses.replace(found[1], config=found[1].config.replace(method="simclr"))
    titles = re.findall(r'aria-label="(.*?loss.*?|Loss.*?),', "".join(_dynamics([found[0], other])), re.IGNORECASE)
    assert titles == [f"{kind} of {of}" for kind in ("Training loss", "Loss between the views")
                      for of in ("byol", "simclr")]  # fmt: skip


def test_what_comes_from_paths_is_text(tree, file, runs):
    assert NASTY in file.parent.parent.joinpath(runs[0]).name
    assert any(NASTY in text for text in tree.said("small"))
    assert not tree.of("img")
    drawn = render("legend.html", lines=[Line(NASTY, 0)])
    assert drawn.count("<") == render("legend.html", lines=[Line("plain", 0)]).count("<")
    assert Tree(drawn).said("li") == [NASTY]


def test_differing_options_are_apart_from_the_same(tree):
    rows = tree.said("th")
    differing = rows[rows.index("option") : rows.index("option", rows.index("option") + 1)]
    assert {"energy", "out"} <= set(differing)
    assert not {"batch", "uniformity"} & set(differing)
    assert tree.of("details") == [{}]  # folded


def test_a_run_that_has_just_begun(copy, tmp_path):
    (copy / "checkpoint.pt").unlink()
    (copy / "metrics.jsonl").unlink()
    tree = report([copy.rename(os.fsdecode(bytes(copy) + b"\xff"))], tmp_path)  # a name that is no text
    assert tree.said("h2") == SECTIONS
    assert tree.said("td")[:4] == ["digits", "0 of 2", "–", "–"]
    assert [text.partition(": ")[2] for text in tree.said("li")] == [
        "no densities, neighbours and map: there is no checkpoint yet",
        "no curves: nothing has been logged yet",
        "not evaluated: there is no evaluation.json",
    ]
    assert tree.of("figure") == []


def test_a_run_being_written_shows_its_whole_lines(copy, runs, tmp_path):
    whole = (copy / "metrics.jsonl").read_text()
    (copy / "metrics.jsonl").write_text(whole + '{"step": 17, "loss": NaN}\n{"step": 18, "lo')
    tree = report([copy], tmp_path)
    lines = [a["points"] for a in tree.of("polyline", "line")]
    assert len(lines) == 4 + len(energies(runs[1]))
    assert "nan" not in " ".join(lines)
    assert ": densities, neighbours and map are of the last checkpoint, after update 16" in tree.said("li")
    (copy / "checkpoint.pt").unlink()
    (copy / "metrics.jsonl").write_text("".join(line + "\n" for line in whole.splitlines() if "knn" not in line))
    tree = report([copy], tmp_path)
    assert len(tree.of("polyline", "line")) == 2
    assert any("no k-NN accuracy, uniformity and energies" in text for text in tree.said("li"))


def test_damaged_files_leave_the_rest(copy, tmp_path):
    (copy / "checkpoint.pt").write_bytes(b"no checkpoint")
    (copy / "evaluation.json").write_text('{"step": 3, "test": {"knn": {"top1": 5, "k": 2}, "odd": "x", "none": null}}')
    tree = report([copy], tmp_path)
    assert "2-NN, test" in tree.said("th")
    assert "5.0" in tree.said("td")
    assert any("checkpoint.pt is damaged" in text for text in tree.said("li"))
    assert len(tree.of("polyline", "line")) == 4 + len(energies(copy))


@pytest.fixture
def in_colour(monkeypatch, tmp_path):
    """A run with two outputs on images as those of CIFAR."""
    generator = torch.Generator().manual_seed(0)
    images = Images(
        torch.randint(0, 256, (80, 3, 32, 32), dtype=torch.uint8, generator=generator),
        torch.arange(80) % 4,
        ("bird", "cat", "<deer>", "dog"),
    )
    monkeypatch.setitem(SOURCES, "cifar10", Source(lambda root: (images, images), 5, "noise"))
    options = SMALL | {"batch": 20, "knn_every": 0, "root": tmp_path, "optimizer": "adamw"}
    return hs.pretrain("byol", "cifar10", dimensions=2, out=tmp_path / "colour", **options).path


def test_runs_on_different_data_and_twice_the_same(in_colour, runs, tmp_path):
    tree = report([in_colour, runs[1], in_colour], tmp_path)
    assert tree.said("h1") == ["Report of byol, byol-mhe"]
    captions = [text for text in tree.said("figcaption") if text.startswith(":")]
    assert captions[0] == ": the features themselves"
    assert "projected onto the first two principal directions" in captions[1]
    assert len({a["class"].split()[1] for a in tree.of("span", "query")}) == 2  # a sheet for each data set
    assert any(text.endswith("knn_every is 0") for text in tree.said("li"))
    assert "<deer>" in tree.said("li")


def test_runs_of_one_method_are_named_by_their_folders(copy, tmp_path):
    (copy / "checkpoint.pt").unlink()
    twin = shutil.copytree(copy, tmp_path / "twin")
    assert report([copy, twin], tmp_path).said("h1") == ["Report of byol-mhe (run), byol-mhe (twin)"]
    far = shutil.copytree(copy, tmp_path / "far" / "run")
    assert report([copy, far], tmp_path).said("h1") == [f"Report of byol-mhe ({copy}), byol-mhe ({far})"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing argument RUN: hypersphere report RUN …"),
        (["{tmp}"], "{tmp} is not a run: it has no run.json"),
        (["{run}", "{tmp}/none"], "run not found: {tmp}/none does not exist"),
        (["{run}", "--out", "{tmp}"], "--out {tmp} is a folder"),
        (["{run}", "--out", "{tmp}/a/b.html"], "--out {tmp}/a/b.html: there is no folder {tmp}/a"),
        (["{run}", "--device", "abacus"], "--device abacus cannot be used here"),
        (["{run}", "--outt", "x"], "unknown option --outt: did you mean --out?"),
    ],
)
def test_mistakes_are_one_line(words, message, runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"tmp": tmp_path, "run": runs[1]}
    assert main(["report", *(word.format(**names) for word in words)]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith(f"hypersphere: {message.format(**names)}")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_leaves_the_one_before(copy, tmp_path, capsys, monkeypatch):
    (copy / "checkpoint.pt").unlink()
    out = tmp_path / "pages" / "report.html"
    out.parent.mkdir()
    out.write_text("before")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main(["report", str(copy), "--out", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    assert out.read_text() == "before"


def test_words_among_options():
    from hypersphere.cli.report import ReportOptions

    words = ["a", "--out", "x.html", "b", "--device=cpu", "c"]
    assert parse("report", ReportOptions, words) == ReportOptions(("a", "b", "c"), Path("x.html"), "cpu")


def test_features_that_are_no_numbers_are_told(copy, monkeypatch):
    monkeypatch.setattr(hs.Run, "encode", lambda self, images: torch.full((len(images), 4), math.nan))
    assert read_run_data(copy, "cpu", None).missing[0].endswith("features are not finite")


def test_of_many_classes_the_first_five_are_told(copy):
    (copy / "evaluation.json").write_text('{"step": 3, "test": {"linear": {"top1": 61.25, "top5": 83.5}}}')
    run = read_run_data(copy, "cpu", None)
    assert evaluated(run) == {("test", "linear"): "61.2"}
    run.written_by["classes"] = 100
    assert evaluated(run) == {("test", "linear"): "61.2 (top-5 83.5)"}


def test_collapse_is_told(copy):
    epochs = hs.load_run(copy).config.epochs
    told = f"its features have collapsed by epoch {epochs}: spread 0.001 (1 is even, 0 one point), effective rank 1.2"
    for number, epoch in enumerate((0, epochs)):  # one at the start does not count
        line = {"step": 90 + number, "epoch": epoch, "spread": 0.001, "effective_rank": 1.2}
        with open(copy / "metrics.jsonl", "a", encoding="utf-8") as metrics:
            metrics.write(json.dumps(line) + "\n")
        assert (told in read_run_data(copy, "cpu", None).missing) == (number == 1)


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


def style_of(browser, node, name):
    return browser.execute_script("return getComputedStyle(arguments[0])[arguments[1]]", node, name)


def test_in_a_browser(browser, file, runs):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def one(selector):
        return browser.find_element(By.CSS_SELECTOR, selector)

    browser.get(file.as_uri())
    assert browser.title == "Report of byol, byol-mhe"

    drawn = browser.execute_script("""
        const area = (node) => { const box = node.getBoundingClientRect(); return Math.max(box.width, box.height); };
        return [...document.querySelectorAll("figure")].map((figure) =>
            [...figure.querySelectorAll("polyline, use, image, .row .tile")].filter((node) => area(node) > 0).length);
    """)
    assert len(drawn) == 10 + len({name for run in runs for name in energies(run)})
    assert min(drawn) > 0

    mark, card = one(".map use[data-image='77']"), one(".map .card")
    assert not card.is_displayed()
    ActionChains(browser).move_to_element(mark).perform()
    assert card.is_displayed()
    chosen, tile = one(".map use.chosen"), card.find_element(By.CSS_SELECTOR, ".tile")
    assert card.text == chosen.get_attribute("data-class")  # digits are named so
    assert style_of(browser, tile, "background-image").startswith('url("data:image/png;base64,')
    row, column = divmod(int(chosen.get_attribute("data-image")), 32)
    assert style_of(browser, tile, "background-position") == f"{-128 * column}px {-128 * row}px".replace("-0px", "0px")

    one(".map svg").send_keys(Keys.ARROW_RIGHT)
    moved = one(".map use.chosen")
    assert float(moved.get_attribute("x")) > float(chosen.get_attribute("x"))
    one(".map svg").send_keys(Keys.ESCAPE)
    assert not card.is_displayed()

    entry = one(".map .legend li[data-class='3']")
    ActionChains(browser).move_to_element(entry).perform()
    shown = browser.find_elements(By.CSS_SELECTOR, ".map:first-child .ground use:not(.faded)")
    assert {node.get_attribute("data-class") for node in shown} == {"3"}

    folded = one("details table")
    assert not folded.is_displayed()
    one("summary").click()
    assert folded.is_displayed()

    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {file.as_uri()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_in_light_and_dark(browser, file, scheme):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    chosen = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [chosen]})
    browser.get(file.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    body = browser.find_element("tag name", "body")
    paper, ink = (
        sum(map(int, re.findall(r"\d+", style_of(browser, body, name))[:3])) for name in ("background-color", "color")
    )
    assert abs(paper - ink) > 400
    assert (paper > ink) == (scheme == "light")
