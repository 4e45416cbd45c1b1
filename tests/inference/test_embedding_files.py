"""Files of embeddings: every kind gives the same rows, every mistake one line."""

import numpy as np
import pytest

from hypersphere.diagnostics.embeddings import of_array
from hypersphere.diagnostics.point_cloud import summarize
from hypersphere.errors import UserError
from hypersphere.inference import embedding_files
from hypersphere.inference.embedding_files import read_embeddings

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
    monkeypatch.setattr(embedding_files, "PIECE", 7 * 6 * 4)  # seven rows at a time
    np.testing.assert_array_equal(rows_of(npy(tmp_path / "a.npy")), X)
    np.testing.assert_array_equal(rows_of(npy(tmp_path / "b.npy", np.asfortranarray(X))), X)
    for save, name in ((np.savez, "c.npz"), (np.savez_compressed, "d.npz")):
        save(tmp_path / name, embeddings=X, labels=np.arange(50), more=X[:3])
        np.testing.assert_array_equal(rows_of(tmp_path / name), X)


def test_a_csv_file(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_files, "PIECE", 7 * 6 * 4)
    lines = [f'"a,\n{n}",,{",".join(f"{x:.9g}" for x in row)}\n' for n, row in enumerate(X)]
    file = tmp_path / "a.csv"
    file.write_text("file,label,x0,x1,x2,x3,x4,x5\n" + "".join(lines))
    np.testing.assert_array_equal(rows_of(file), X)
    file.write_text("file,label\na,b\n")
    with pytest.raises(UserError, match="must have columns x0, x1, … as hypersphere embed writes them"):
        read_embeddings(file)
    file.write_text("file,label,x0,x1\na,b,1,2\na,b,1,c\n")
    with pytest.raises(UserError, match=r"is damaged, or no .csv file \(could not convert string to float: 'c'\)"):
        rows_of(file)


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
    assert "labelled.parquet: ignored integer columns: label, __index_level_0__\n" in capsys.readouterr().err
    bytes_ = {name: (10 * values).astype(np.int8) for name, values in columns.items()}
    parquet.write_table(arrow.table({**bytes_, "__index_level_0__": list(range(50))}), tmp_path / "bytes.parquet")
    np.testing.assert_array_equal(rows_of(tmp_path / "bytes.parquet"), (10 * X).astype(np.int8))
    parquet.write_table(arrow.table({"vector": [[1.0, 2.0], [3.0]]}), tmp_path / "ragged.parquet")
    with pytest.raises(UserError, match=r"ragged.parquet has vectors of different lengths: 1, 2"):
        rows_of(tmp_path / "ragged.parquet")
    parquet.write_table(arrow.table({"vector": [[1.0, 2.0], None]}), tmp_path / "holes.parquet")
    with pytest.raises(UserError, match=r"has rows without a vector: remove them"):
        rows_of(tmp_path / "holes.parquet")
    later = [[1.0, 2.0]] * 8192 + [[1.0, 2.0, 3.0]] * 5
    parquet.write_table(arrow.table({"vector": later}), tmp_path / "later.parquet")
    with pytest.raises(UserError, match=r"later.parquet has vectors of different lengths: 2, 3"):
        rows_of(tmp_path / "later.parquet")


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.array([[1, 2], [3]], dtype=object), "holds Python objects, perhaps rows of different lengths"),
        (X[0], r"has shape \(6,\): expected N × D"),
        (X[:1], "expected N × D with at least two rows"),
        (np.array([["a", "b"], ["c", "d"]]), "holds <U1: expected numbers"),
    ],
)
def test_arrays_that_are_no_embeddings(tmp_path, x, told):
    with pytest.raises(UserError, match=told):
        read_embeddings(npy(tmp_path / "x.npy", x, allow_pickle=True))


def test_files_that_are_damaged(tmp_path):
    whole = npy(tmp_path / "a.npy").read_bytes()
    for name, content, told in (
        ("empty.npy", b"", "is empty"),
        ("junk.npy", b"what is this?", "is damaged, or no .npy file"),
        ("junk.npz", b"what is this?", "is damaged, or no .npz file"),
        ("cut.npy", whole[:-100], "is cut off: expected 50 rows, found 45"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=told):
            list(read_embeddings(tmp_path / name).pieces())
    np.savez(tmp_path / "flipped.npz", embeddings=X)
    whole = bytearray((tmp_path / "flipped.npz").read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / "flipped.npz").write_bytes(whole)
    with pytest.raises(UserError, match=r"flipped.npz is damaged, or no .npz file \(Bad CRC"):
        rows_of(tmp_path / "flipped.npz")
    np.savez(tmp_path / "objects.npz", embeddings=np.array([[1, 2], [3]], dtype=object))
    with pytest.raises(
        UserError, match=r"objects.npz:embeddings holds Python objects, perhaps rows of different lengths"
    ):
        read_embeddings(tmp_path / "objects.npz")
    with pytest.raises(
        UserError,
        match=r"embeddings: row 17 \(counted from 0\) has NaN, infinity or a number beyond float32: remove it",
    ):
        summarize(of_array(np.where(np.arange(50)[:, None] == 17, np.nan, X)))
