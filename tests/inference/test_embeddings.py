"""Embeddings in memory are those of the file that `hypersphere embed` writes."""

import numpy as np
import pytest

import hypersphere as hs
from hypersphere.errors import UserError
from hypersphere.inference.embed_to_file import embed


def test_a_folder_is_embedded_as_by_the_command(run, drawn, tmp_path, capsys):
    folder, paths = drawn
    (folder / "broken.png").write_bytes(b"no image")
    try:
        embed(run, folder, tmp_path / "all.npz", device="cpu")
        capsys.readouterr()
        found = hs.embed(run, folder, device="cpu")
    finally:
        (folder / "broken.png").unlink()
    file = np.load(tmp_path / "all.npz")
    assert found.paths == file["path"].tolist()
    np.testing.assert_array_equal(found.vectors, file["vector"])
    assert len(found.unreadable) == 1
    assert f"1 file in {folder} could not be read" in capsys.readouterr().err
    assert len(found.vectors) == len(paths)


def test_a_list_is_embedded_in_its_order(run, drawn):
    loaded, paths = hs.load(run, "cpu"), drawn[1][:3]
    found = hs.embed(loaded, [*paths, np.zeros((3, 40, 40), np.uint8)])
    assert found.paths == [*map(str, paths), ""]
    np.testing.assert_array_equal(found.vectors[:3], loaded.encode(paths))
    np.testing.assert_array_equal(hs.embed(hs.load_run(run, "cpu"), paths).vectors, loaded.encode(paths))


def test_nothing_to_embed_is_told(run, tmp_path):
    with pytest.raises(UserError):
        hs.embed(run, tmp_path, device="cpu")
