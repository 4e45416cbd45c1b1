import json

from hypersphere.demo import demo


def test_the_demo_ends_with_a_table_and_says_where_it_is(tmp_path, capsys):
    folder = demo(tmp_path / "demo", epochs=1)
    printed = capsys.readouterr().out
    for word in ("raw pixels", "random encoder", "BYOL", "BYOL + Uni", "BYOL-MHE", str(folder)):
        assert word in printed
    saved = json.loads((folder / "demo.json").read_text())
    assert saved["results"].keys() == {"raw pixels", "random encoder", "BYOL", "BYOL + Uni", "BYOL-MHE"}
    assert demo(tmp_path / "demo", epochs=1).name == "demo-2"
