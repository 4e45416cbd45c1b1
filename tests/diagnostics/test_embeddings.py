"""Files of embeddings: every kind gives the same rows, every mistake one line."""

import numpy as np
import pytest

from hypersphere.diagnostics import embeddings, gather, of_array, read_embeddings
from hypersphere.errors import UserError

X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


def rows_of(path):
    found = read_embeddings(path)
    rows = np.concatenate(list(found.pieces()))
    assert rows.shape == (found.rows, found.dimensions)
    return rows


def npy(path, x=X, **options):
    np.save(path, x, **options)
    return path


def test_every_kind_of_file_gives_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "PIECE", 7 * 6 * 4)  # seven rows at a time
    np.testing.assert_array_equal(rows_of(npy(tmp_path / "a.npy")), X)
    np.testing.assert_array_equal(rows_of(npy(tmp_path / "b.npy", np.asfortranarray(X))), X)
    for save, name in ((np.savez, "c.npz"), (np.savez_compressed, "d.npz")):
        save(tmp_path / name, embeddings=X, labels=np.arange(50), more=X[:3])
        np.testing.assert_array_equal(rows_of(tmp_path / name), X)


def test_parquet_of_vectors_or_of_columns(tmp_path, capsys):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [str(n) for n in range(50)]
    parquet.write_table(arrow.table({"path": names, "vector": list(X)}), tmp_path / "v.parquet")
    parquet.write_table(arrow.table({"path": names, **{f"d{n}": X[:, n] for n in range(6)}}), tmp_path / "c.parquet")
    large = arrow.array(list(X), arrow.large_list(arrow.float32()))
    parquet.write_table(arrow.table({"id": list(range(50)), "vector": large}), tmp_path / "l.parquet")
    for name in ("v.parquet", "c.parquet", "l.parquet"):
        np.testing.assert_array_equal(rows_of(tmp_path / name), X)
    columns = {f"d{n}": X[:, n] for n in range(6)}
    beside = {"label": [n % 3 for n in range(50)], "__index_level_0__": list(range(50))}
    parquet.write_table(arrow.table({**columns, **beside}), tmp_path / "labelled.parquet")
    np.testing.assert_array_equal(rows_of(tmp_path / "labelled.parquet"), X)
    assert "columns of whole numbers (label, __index_level_0__) are taken for none" in capsys.readouterr().err
    bytes_ = {name: (10 * values).astype(np.int8) for name, values in columns.items()}
    parquet.write_table(arrow.table({**bytes_, "__index_level_0__": list(range(50))}), tmp_path / "bytes.parquet")
    np.testing.assert_array_equal(rows_of(tmp_path / "bytes.parquet"), (10 * X).astype(np.int8))
    parquet.write_table(arrow.table({"vector": [[1.0, 2.0], [3.0]]}), tmp_path / "ragged.parquet")
    with pytest.raises(UserError, match=r"ragged: its vectors have 2, 1 dimensions"):
        read_embeddings(tmp_path / "ragged.parquet")
    parquet.write_table(arrow.table({"vector": [[1.0, 2.0], None]}), tmp_path / "holes.parquet")
    with pytest.raises(UserError, match=r"has rows without a vector"):
        read_embeddings(tmp_path / "holes.parquet")
    later = [[1.0, 2.0]] * 8192 + [[1.0, 2.0, 3.0]] * 5
    parquet.write_table(arrow.table({"vector": later}), tmp_path / "later.parquet")
    with pytest.raises(UserError, match=r"ragged: its vectors have 2 and 3 dimensions"):
        rows_of(tmp_path / "later.parquet")


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.array([[1, 2], [3]], dtype=object), "ragged"),
        (X[0], "N × D"),
        (X[:1], "two rows"),
        (np.array([["a", "b"], ["c", "d"]]), "numbers"),
    ],
)
def test_arrays_that_are_no_embeddings(tmp_path, x, told):
    with pytest.raises(UserError, match=told):
        read_embeddings(npy(tmp_path / "x.npy", x, allow_pickle=True))


def test_files_that_are_damaged(tmp_path):
    whole = npy(tmp_path / "a.npy").read_bytes()
    for name, content, told in (
        ("empty.npy", b"", "is empty"),
        ("junk.npy", b"what is this?", "cannot be read as .npy"),
        ("junk.npz", b"what is this?", "cannot be read as .npz"),
        ("cut.npy", whole[:-100], "is cut off: it should have 50 rows, and ends in row 45"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=told):
            list(read_embeddings(tmp_path / name).pieces())
    np.savez(tmp_path / "flipped.npz", embeddings=X)
    whole = bytearray((tmp_path / "flipped.npz").read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / "flipped.npz").write_bytes(whole)
    with pytest.raises(UserError, match=r"flipped.npz cannot be read as .npz \(Bad CRC"):
        rows_of(tmp_path / "flipped.npz")
    np.savez(tmp_path / "objects.npz", embeddings=np.array([[1, 2], [3]], dtype=object))
    with pytest.raises(UserError, match=r"objects.npz:embeddings holds Python objects \(ragged rows\?\)"):
        read_embeddings(tmp_path / "objects.npz")
    with pytest.raises(UserError, match=r"row 17 \(counted from 0\) holds NaN"):
        gather(of_array(np.where(np.arange(50)[:, None] == 17, np.nan, X)))
