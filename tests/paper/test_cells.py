"""What cells mean: their configs, the protocols they run by, which results are theirs, what they cost."""

import dataclasses

import pytest

from hypersphere.cli import main
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError
from hypersphere.methods import METHODS
from hypersphere.paper import claims, cost, reproduce
from hypersphere.paper.catalogue import named, protocol_for
from hypersphere.paper.cells import Protocol, Row, Table
from hypersphere.paper.cifar100 import CIFAR100
from hypersphere.paper.comparison import COMPARISON
from hypersphere.paper.evidence import Evidence
from hypersphere.paper.figures import FIGURES
from hypersphere.paper.larger_steps import LARGER_STEPS
from hypersphere.paper.mechanism import MECHANISM, QUESTIONS
from hypersphere.paper.muon import MUON
from hypersphere.paper.photographs import PHOTOGRAPHS
from hypersphere.paper.rates import RATES
from hypersphere.paper.tables import ALL, BY_BATCH, BY_UPDATE, BYOL, PREDICTOR_A2, TABLES
from hypersphere.paper.tuning import TRIALS
from hypersphere.report.markdown import results_page
from tests.networks import those_of
from tests.paper.made import result


def test_cells_of_several_tables_are_one_and_names_tell_cells_apart():
    by_name, by_hash = {}, {}
    for table in TABLES.values():
        for cell in table.cells:
            assert by_name.setdefault(cell.name, cell).options == cell.options
            if cell.obstacle is None:
                assert by_hash.setdefault(cell.config(0).hash, cell.name) == cell.name
    assert TABLES["tab:bn"].rows[3].cell is TABLES["tab:sections"].rows[7].cell
    assert TABLES["tab:bn"].rows[3].cell.options["energy_layers"] == ALL
    assert PREDICTOR_A2 in TABLES["tab:mhe"].cells
    assert PREDICTOR_A2 in TABLES["tab:batch"].cells


def test_published_numbers_that_the_paper_repeats_agree():
    seen = {}
    for name in ("tab:bn", "tab:sections", "tab:weight", "tab:mhe", "tab:batch"):
        for row in TABLES[name].rows:
            assert seen.setdefault(row.cell.name, row.published["top-1"]) == row.published["top-1"]


def test_configs_are_of_the_test_set_with_the_papers_settings():
    assert BYOL.config(2) == Config(holdout="test", seed=2)
    by_label = {row.labels: row.cell.config(0) for row in TABLES["tab:batch"].rows}
    small, slow = (by_label["BYOL", "128", rate] for rate in (BY_UPDATE, BY_BATCH))
    assert (small.batch, small.micro_batch, small.lr) == (1024, 128, 1.5)
    assert slow == small.replace(lr=1.5 / 8)
    assert {row.cell.config(0).stem for row in TABLES["tab:cifar"].rows if row.labels[1] == "STL-10"} == {"imagenet"}
    assert recipe("byol", "stl10").stem == "imagenet"
    sections = {cell.config(0).hash for cell in TABLES["tab:sections"].cells}
    assert {cell.config(0).replace(data="cifar10").hash for cell in CIFAR100.cells} == sections


def test_the_mechanism_asks_one_question_a_cell():
    """By 100 epochs, unless told otherwise; each cell differs from its baseline in what the question is about."""
    asked = {question.cell.name: question for question in QUESTIONS}
    protocol = protocol_for(MECHANISM, Protocol())
    assert protocol == Protocol(100)
    assert protocol_for(MECHANISM, Protocol(20)) == Protocol(20)

    def changed(name):
        question = asked[name]
        ours, theirs = (protocol.config(cell, 0) for cell in (question.cell, question.baseline))
        return set(ours.differences(theirs))

    assert changed("mechanism-tau98") == {"tau"}
    assert changed("mechanism-lr3") == {"lr"}
    assert changed("mechanism-centred") == {"regularizer", "regularizer_weight", "energy_layers"}
    assert changed("mechanism-sgd-mhe-fg") == changed("mhe-fg") == {"energy", "energy_layers"}
    assert changed("mechanism-no-predictor") == {"predictor"}
    assert changed("mechanism-no-predictor-mhe-fg") == {"energy", "energy_layers"}
    assert len(MECHANISM.cells) == len({cell.config(0).hash for cell in MECHANISM.cells})


def test_a_result_whose_cell_has_changed_is_stale_and_not_used(tmp_path):
    old = result(BYOL, 0, 90.0)
    changed = dataclasses.replace(BYOL, options={"tau": 0.9})
    evidence = Evidence([old])
    assert evidence.values(BYOL, "top-1") == {0: 90.0}
    assert evidence.values(changed, "top-1") == {}
    assert evidence.stale(changed) == [old]
    assert evidence.stale(BYOL) == []
    other_version = dataclasses.replace(old, hash="0" * 12)
    assert Evidence([other_version]).values(BYOL, "top-1") == {}
    assert Evidence([other_version]).stale(BYOL) == [other_version]
    assert "## Stale" not in results_page(evidence)
    table = Table("tab:own", "", ("method",), (Row(("BYOL",), changed, {"top-1": 1.0}),))
    page = results_page(evidence, [table])
    assert "tab:own: " in page.split("## Not run yet")[1]
    assert "| byol | 0 | tau 0.99 | 90.00 |" in page.split("## Stale")[1]
    shape = FIGURES["fig:uni"].panels[2][1]
    circle = dataclasses.replace(result(shape, 0, 50.0, epochs=100), hash="0" * 12)
    renamed = dataclasses.replace(old, cell="bjol")
    page = results_page(Evidence([circle, renamed]))
    assert "| circle-byol | 0 | a default | 50.00 |" in page.split("## Stale")[1]
    assert "| bjol | 0 | its name, which no cell has | 90.00 |" in page.split("## Stale")[1]


def test_a_shorter_protocol_is_kept_apart():
    evidence = Evidence([result(BYOL, 0, 90.0), result(BYOL, 0, 80.0, epochs=100)])
    assert evidence.values(BYOL, "top-1") == {0: 90.0}
    assert evidence.values(BYOL, "top-1", Protocol(epochs=100)) == {0: 80.0}
    assert evidence.stale(BYOL) == []
    page = results_page(evidence)
    assert "top-1, as written, 100 epochs" in page
    assert "90.00 (n = 1) | 80.00 (n = 1)" in page


def test_tuned_runs_are_a_column_of_their_own(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("hypersphere.paper.cells.TUNED", {})
    assert main(["reproduce", "tab:bn", "--tuned", "--results", str(tmp_path)]) == 2
    assert "there are no tuned options yet: leave out --tuned" in capsys.readouterr().err
    for module in ("cells", "evidence"):
        monkeypatch.setattr(f"hypersphere.paper.{module}.TUNED", {"lr": 2.0})
    tuned = Protocol(tuned=True)
    config = tuned.config(BYOL, 0)
    assert config == BYOL.config(0).replace(lr=2.0)
    assert tuned.config(TABLES["tab:cifar"].rows[0].cell, 0).lr == 1.0  # of another encoder
    evidence = Evidence([result(BYOL, 0, 90.0), result(BYOL, 0, 92.0, config=config, hash=config.hash)])
    assert (evidence.values(BYOL, "top-1"), evidence.values(BYOL, "top-1", tuned)) == ({0: 90.0}, {0: 92.0})
    assert evidence.stale(BYOL) == []
    page = results_page(evidence)
    assert "| 90.74 | 90.00 (n = 1) | 92.00 (n = 1) |" in page
    assert "| byol | tuned | 0 | 92.00 |" in page
    assert "### Tuned" not in page  # one cell compares with nothing


def test_what_compares_batches_or_is_of_others_is_not_tuned():
    tuned = Protocol(tuned=True)
    for name in ("tab:batch", "fig:batch", "tab:cifar", "methods", "tuning", "claims", "fig:uni"):
        with pytest.raises(UserError, match=f"not all of {name} is tuned"):
            list(reproduce.missing_runs(named(name), Evidence([]), (0,), protocol=tuned))
    for name in ("tab:sections", "tab:bn", "tab:mhe", "tab:weight", "fig:knn"):
        assert all(map(tuned.changes, named(name).cells))
    config = tuned.config(BYOL, 0)
    evidence = Evidence([result(BYOL, 0, 92.0, config=config, hash=config.hash)])
    page = results_page(evidence)
    assert "92.00" in page.split("## tab:mhe")[1].split("## Neighbours")[0]
    assert "## tab:batch" not in page  # which has not run
    assert evidence.whole(FIGURES["fig:batch"].needed) is None
    short = Protocol(50, tuned=True)
    assert short.changes(BYOL)
    assert not short.changes(claims.SIMCLR)


def test_trials_never_see_the_test_set():
    cells = [cell for table in (TRIALS, COMPARISON, RATES, LARGER_STEPS, MUON, PHOTOGRAPHS) for cell in table.cells]
    assert {cell.config(0).holdout for cell in cells} == {"validation"}
    assert {row.cell.config(0).method for row in COMPARISON.rows} == METHODS.keys() - {"distill"}
    assert {(row.cell.config(0).epochs, row.cell.config(0).batch) for row in COMPARISON.rows} == {(50, 512)}
    assert sum(bool(row.cell.config(0).energy) for row in COMPARISON.rows) == len(METHODS) - 1
    assert len({row.cell.config(0).hash for row in COMPARISON.rows}) == 3 * (len(METHODS) - 1)
    assert len({row.cell.config(0).hash for row in TRIALS.rows}) == len(TRIALS.rows)
    for table in (RATES, LARGER_STEPS, MUON, PHOTOGRAPHS):
        assert len({row.cell.config(0).hash for row in table.rows}) == len(table.rows)
    cell = TRIALS.rows[1].cell
    made = result(cell, 0, 70.0, epochs=50, evaluation={"linear-cached": {"top1": 71.06}, "knn": {"top1": 59.0}})
    assert "| byol | crop_min 0.2 | 50 | 71.06 (n = 1) | 59.00 (n = 1) |" in results_page(Evidence([made]))


def test_costs_are_counted():
    byol = cost.seconds(BYOL.config(0), tflops=800)
    assert 300 < byol < 600
    assert cost.seconds(BYOL.config(0, epochs=100), 800) == pytest.approx(byol / 3)
    assert cost.seconds(BYOL.config(0), 400) == pytest.approx(2 * byol)


def test_what_an_update_does_once_is_shared_by_its_images():
    """OBoW's generators go over all words, however many images there are."""
    shape = cost._shape(recipe("obow", "cifar10"))
    assert cost._operations(shape) == pytest.approx(cost._operations(shape, 512), rel=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_counted_without_computing(method):
    assert cost.seconds(recipe(method, "digits", epochs=1, **those_of(method, hidden=16, projection=8)), tflops=1) > 0
