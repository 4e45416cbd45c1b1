"""How often the rule gives each verdict, where the truth is known: tab:sections by seeds that are drawn."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hypersphere.paper.claims import CLAIMS
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.tables import BYOL, TABLES
from hypersphere.paper.verdict import Judge, decide
from hypersphere.util.estimates import Effect, combine, pooled_spread
from tests.paper.made import result

SIGMA = 0.2  # spread of seeds that was seen
SECTIONS = [claim for claim in CLAIMS if claim.family == "tab:sections against BYOL"]
MAIN_EFFECT = next(c for c in CLAIMS if c.sentence.startswith("MHE of the predictor improves linear accuracy, av"))
PREDICTOR = next(c for c in SECTIONS if c.sentence == "MHE of the predictor improves linear accuracy.")
DRAWS = 1000
WORDS = ("reproduced", "smaller than published", "no effect", "opposite", "undecided")
DOCS = Path(__file__).parents[2] / "docs" / "reproduce.md"


def drawn(rng, means, n, more=0):
    """Seeds of each cell; BYOL has some more."""
    cells = {"byol": 90.0, **means}
    return {name: rng.normal(mean, SIGMA, n + more * (name == "byol")).tolist() for name, mean in cells.items()}


def effect_of(claim, values, known=None):
    pool, shared_by = known or pooled_spread(values)
    names = [cell.name for cell in claim.cells]
    shared = pool if shared_by >= set(names) else None
    return combine([values[name] for name in names], [term.weight for term in claim.terms], shared)


def verdict(claim, values, known=None):
    """Main effects are three by Bonferroni, the eight cells are compared with BYOL by Dunnett."""
    effect = effect_of(claim, values, known)
    if claim is MAIN_EFFECT:
        return decide(claim, effect, effect.critical(3) * effect.error)[0]
    critical = effect.critical(len(SECTIONS), len(values["byol"]) / len(values["mhe-q"]))
    return decide(claim, effect, critical * effect.error)[0]


def rates(claim, truth, n):
    """Per cent of each verdict about a claim whose effect is `truth`, all others being 0."""
    rng = np.random.default_rng(0)
    names = dict.fromkeys(cell.name for c in (*SECTIONS, MAIN_EFFECT) for cell in c.cells if cell is not BYOL)
    changed = {"mhe-q"} if claim is PREDICTOR else {name for name in names if "q" in name}
    means = {name: 90.0 + truth * (name in changed) for name in names}
    found = Counter(verdict(claim, drawn(rng, means, n)) for _ in range(DRAWS))
    return {word: 100 * count / DRAWS for word, count in found.items()}


SCENARIOS = {
    ("a cell", 0.9, 3): PREDICTOR,
    ("a cell", 0.9, 5): PREDICTOR,
    ("a cell", 0.0, 3): PREDICTOR,
    ("a cell", 0.0, 5): PREDICTOR,
    ("a main effect", 0.245, 3): MAIN_EFFECT,
    ("a main effect", 0.0, 3): MAIN_EFFECT,
}


@pytest.fixture(scope="module")
def table():
    return {key: rates(claim, *key[1:]) for key, claim in SCENARIOS.items()}


def test_verdicts_are_right_where_there_is_an_effect(table):
    for n in (3, 5):
        right = table["a cell", 0.9, n]
        assert right["reproduced"] >= 80
        assert right.get("opposite", 0) + right.get("no effect", 0) == 0


def test_verdicts_are_seldom_wrong_where_there_is_none(table):
    for what, n in (("a cell", 3), ("a cell", 5), ("a main effect", 3)):
        found = table[what, 0.0, n]
        wrong = sum(found.get(word, 0) for word in ("reproduced", "smaller than published", "opposite"))
        assert wrong <= 5
        assert found["no effect"] > 50 if what == "a cell" else True


def wrong(spreads):
    """Per cent of tables without any effect in which a cell is said to have one; spreads of seeds by cell."""
    rng, found = np.random.default_rng(1), 0
    names = dict.fromkeys(cell.name for claim in SECTIONS for cell in claim.cells)
    for _ in range(DRAWS):
        values = {name: rng.normal(90, spreads.get(name, SIGMA), 3).tolist() for name in names}
        known = pooled_spread(values)
        words = {verdict(claim, values, known) for claim in SECTIONS}
        found += bool(words & {"reproduced", "smaller than published", "opposite"})
    return 100 * found / DRAWS


def test_all_comparisons_of_a_family_are_right_together():
    """By Dunnett, in 95 % of all tables no cell without an effect is said to have one; in a few less if the seeds of
    one vary more, which few seeds do not show."""
    rates = [wrong({}), wrong({"mhe-q": 5**0.5 * SIGMA}), wrong({"byol": 5**0.5 * SIGMA})]
    assert rates[0] < 5
    assert max(rates) < 12
    told = "in {:.0f} % of tables; in {:.0f} % if the seeds of one cell have five times the variance, in {:.0f} % if"
    assert told.format(*rates) in " ".join(DOCS.read_text(encoding="utf-8").split())


def test_the_documented_rates_are_these(table):
    text = DOCS.read_text(encoding="utf-8")
    for (what, truth, n), found in table.items():
        shown = " | ".join(f"{found.get(word, 0):.0f} %" for word in WORDS)
        assert f"| {what} | {truth:+.2f} | {n} | {shown} |" in text


def test_a_judge_says_the_same_of_results():
    """What is simulated here is what judges real runs."""
    rng = np.random.default_rng(2)
    means = {cell.name: 90.0 + 0.1 * place for place, cell in enumerate(TABLES["tab:sections"].cells[1:])}
    cells = {cell.name: cell for cell in TABLES["tab:sections"].cells}
    for _ in range(5):
        values = drawn(rng, means, 3, more=2)
        made = [result(cells[name], seed, value) for name, of in values.items() for seed, value in enumerate(of)]
        judge = Judge(Evidence(made), [*cells.values()])
        for claim in SECTIONS:
            found = judge(claim)
            assert found.word == verdict(claim, values)
            assert found.effect == effect_of(claim, values)
    assert isinstance(found.effect, Effect)
