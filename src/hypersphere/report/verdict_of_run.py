"""What `diagnose` says about the features of a run, in words for the top of a page."""

from markupsafe import Markup

from hypersphere.inference.diagnosis import MARKS, Diagnosis, diagnose
from hypersphere.report.run_data import RunData
from hypersphere.report.templating import render

SAID = ("uniformity (G2)", "effective rank")  # findings that are shown, beside those that are bad


def verdict_of(run: RunData) -> Markup:
    """The verdict on a run whose features are known."""
    assert run.seen is not None
    found = diagnose(run.seen.features)
    health = _worst(found)
    said = [f"{f.name}: {f.sentence}" for f in found.findings if f.name in SAID or f.health == "bad"]
    sentences = [*(sentence[0].upper() + sentence[1:] for sentence in said), *_accuracy(run)]
    verdict = found.verdict.partition(":")[0].capitalize()
    options = {"kind": health, "mark": MARKS[health], "verdict": verdict, "sentences": sentences}
    return render("verdict.html", label=run.label, **options)


def _worst(found: Diagnosis) -> str:
    healths = {finding.health for finding in found.findings}
    return next(health for health in ("bad", "weak", "good", "") if health in healths or not health)


def _accuracy(run: RunData) -> list[str]:
    """k-NN accuracy during training, beside that of the encoder at the start."""
    knn, start = run.last("knn"), run.last("knn_at_start")
    if knn is None:
        return []
    began = "a random encoder" if run.config.init is None else "the weights at the start"
    beside = "" if start is None else f", with {began} {start:.1f} %"
    return [f"k-NN accuracy {knn:.1f} %{beside}"]
