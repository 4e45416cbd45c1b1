"""How a notebook shows a run, a diagnosis and a loaded encoder."""

import torch

import hypersphere as hs
from tests.networks import SMALL_ENCODER


def test_tables_have_the_numbers_and_escape_names(tmp_path):
    small = {"encoder": SMALL_ENCODER, "hidden": 8, "projection": 4, "device": "cpu", "knn_every": 1, "progress": False}
    run = hs.pretrain("byol", "digits", epochs=1, out=tmp_path / "a<b>", **small)
    found = run.evaluate("knn")["knn"]["top1"]
    shown = run._repr_html_()
    assert "a&lt;b&gt;" in shown
    assert f'<td style="text-align: left">{found:.2f} %</td>' in shown
    assert f"{run.metrics[-1]['knn']:.4g}" in shown
    assert "k-NN accuracy at the start, %" in shown
    loaded = hs.load(run.path, device="cpu")
    assert "32 features" in loaded._repr_html_()
    assert f"{sum(w.numel() for w in run.encoder.parameters()):,} weights" in loaded._repr_html_()
    diagnosis = hs.diagnose(torch.eye(8))
    assert diagnosis.verdict in diagnosis._repr_html_()
    for finding in diagnosis.findings:
        assert finding.measured.format(".4g", ".2g") in diagnosis._repr_html_()
