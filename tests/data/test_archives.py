"""Images in zip files, compressed tar files, parquet files and videos."""

import io
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

import hypersphere as hs
from hypersphere.cli import main
from hypersphere.data import Dataset, DataSpec
from hypersphere.data.unreadable import unreadable_in
from hypersphere.errors import UserError
from hypersphere.inference.embed_to_file import embed
from tests.folders import SMALL


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERSPHERE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def picture(number, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (18, 20, 3), dtype=np.uint8)).save(file, kind)
    return file.getvalue()


def folder_of(path, parts=("",)):
    for n, name in enumerate(f"{part}{c}/{i}.png" for part in parts for c in ("cat", "dog") for i in range(6)):
        file = path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(n))
    return path


@pytest.fixture(params=["zip", "gztar", "tar"])
def archive(tmp_path, request):
    def make(parts=("",)):
        folder = folder_of(tmp_path / "source", parts)
        return shutil.make_archive(str(tmp_path / "a"), request.param, folder)

    return make


def dataset(path, **options):
    return Dataset.resolve(DataSpec(str(path), **options))


def pixels(listing):
    return [listing.reader.read(number, None).numpy() for number in range(len(listing))]


def test_folders_in_an_archive_are_classes(archive, tmp_path):
    path = archive()
    found, wanted = dataset(path).split("validation"), dataset(tmp_path / "source/photos").split("validation")
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.classes == ("cat", "dog")
        assert ours.labels.tolist() == theirs.labels.tolist()
        assert all(map(np.array_equal, pixels(ours), pixels(theirs)))


def test_splits_in_an_archive(archive):
    parts = dataset(archive(("train/", "val/"))).parts
    assert {part: len(files) for part, files in parts.items()} == {"train": 12, "val": 12}
    assert parts["val"].classes == ("cat", "dog")


def test_a_run_on_an_archive_that_moves(archive, tmp_path):
    path = archive()
    run = hs.pretrain("byol", data=path, out=tmp_path / "run", **SMALL)
    found = run.evaluate("knn")["knn"]
    (tmp_path / "there").mkdir()
    now = shutil.move(path, tmp_path / "there")
    with pytest.raises(UserError, match=r"pass its new location as `root`|file not found"):
        hs.load_run(run.path, "cpu").evaluate("knn")
    assert hs.load_run(run.path, "cpu", root=now).evaluate("knn")["knn"] == found
    assert embed(run.path, now, tmp_path / "v.npz", device="cpu").images == 12
    if str(now).endswith(".tar"):
        assert hs.load_run(run.path, "cpu", root=tmp_path / "there").evaluate("knn")["knn"] == found


def test_a_compressed_tar_file_is_unpacked_once(tmp_path, cache, capsys):
    path = shutil.make_archive(str(tmp_path / "a"), "gztar", folder_of(tmp_path / "source"))
    for _ in range(2):
        assert len(dataset(path).parts["train"]) == 12
    assert capsys.readouterr().err.count("unpacked to") == 1
    (unpacked,) = cache.glob("*.tar")
    unpacked.unlink()
    assert len(pixels(dataset(path).parts["train"])) == 12
    (tmp_path / "a.tar.gz").write_bytes(b"not one")
    with pytest.raises(UserError, match="cannot be decompressed"):
        dataset(path).summary()


def test_a_compressed_tar_file_does_not_fill_the_disk(tmp_path, cache, monkeypatch):
    path = shutil.make_archive(str(tmp_path / "a"), "gztar", folder_of(tmp_path / "source"))
    monkeypatch.setattr("hypersphere.data.compressed_tar.shutil.disk_usage", lambda _: type("U", (), {"free": 1000}))
    with pytest.raises(UserError, match="does not fit on the disk"):
        dataset(path).summary()
    assert not [*cache.glob("*.tar*")]


def test_nothing_is_written_for_members_with_odd_names(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("../up.png", "/etc/abs.png", "__MACOSX/x.png", "in/._y.png", "in/a.png", "in/b.PNG", "in/c.txt"):
            archive.writestr(name, picture(0))
    assert [path.name for path in dataset(tmp_path / "a.zip").parts["train"].paths] == ["a.png", "b.PNG"]
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        for name in ("../../up.png", "in/a.png"):
            info = tarfile.TarInfo(name)
            info.size = len(picture(0))
            tar.addfile(info, io.BytesIO(picture(0)))
    assert len(dataset(tmp_path / "b.tar").parts["train"]) == 2
    assert not [*tmp_path.parent.glob("up.png")]


def test_members_that_cannot_be_read_are_listed(tmp_path, monkeypatch):
    path = shutil.make_archive(str(tmp_path / "a"), "zip", folder_of(tmp_path / "source"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("photos/cat/bad.png", b"x")
        archive.writestr("photos/cat/huge.png", picture(1) + bytes(10**6), zipfile.ZIP_DEFLATED)
    monkeypatch.setattr("hypersphere.data.zip_files.LARGEST", 10**5)
    run = hs.pretrain("byol", data=path, out=tmp_path / "run", **SMALL)
    reasons = {str(name)[-8:]: reason for name, reason in unreadable_in(run.path / "unreadable.tsv").items()}
    assert reasons.keys() <= {"/bad.png", "huge.png"}
    assert embed(run.path, path, tmp_path / "v.npz", device="cpu").images == 12


def test_what_a_file_is_is_said(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "one.png").write_bytes(picture(0))
    (tmp_path / "bad.zip").write_bytes(b"hello")
    for name, told in (
        ("notes.txt", "notes.txt is a file of a kind that is not read as images: pass a folder"),
        ("one.png", "one.png is a single image: pass the folder that contains the images"),
        ("bad.zip", "bad.zip cannot be read as a zip file"),
        ("gone.zip", "file not found"),
        ("gone.parquet", "file not found"),
    ):
        assert main(["data", str(tmp_path / name)]) == 2
        assert told in capsys.readouterr().err


def test_data_describes_images(archive, capsys):
    assert main(["data", archive()]) == 0
    assert (
        "12 images (12 png), shorter side 18 to 18 pixels (median 18); 2 classes: cat, dog" in capsys.readouterr().out
    )


def write_parquet(path, rows, label="label"):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    images = arrow.array([{"bytes": picture(n), "path": f"{n}.png"} for n in rows], kind)
    parquet.write_table(arrow.table({"image": images, label: [n % 2 for n in rows]}), path, row_group_size=5)


def test_parquet_files_as_on_the_hub(tmp_path, capsys):
    for name, rows in (("train-00000-of-00002", range(12)), ("train-00001-of-00002", range(12, 20))):
        write_parquet(tmp_path / f"hub/data/{name}.parquet", rows)
    write_parquet(tmp_path / "hub/data/test-00000-of-00001.parquet", range(20, 26))
    found = dataset(tmp_path / "hub").split("test")
    assert (len(found.train), len(found.held_out)) == (20, 6)
    assert found.train.labels.tolist() == [n % 2 for n in range(20)]
    for number in (0, 4, 5, 11, 12, 19):
        wanted = np.asarray(Image.open(io.BytesIO(picture(number))))
        assert np.array_equal(found.train.reader.read(number, None).permute(1, 2, 0).numpy(), wanted)
    run = hs.pretrain("byol", data=tmp_path / "hub", out=tmp_path / "run", **SMALL, workers=1)
    assert embed(run.path, tmp_path / "hub", tmp_path / "v.npz", device="cpu").images == 26
    assert np.load(tmp_path / "v.npz")["path"][[0, 20]].tolist() == ["train/0", "test/0"]
    assert capsys.readouterr().err.count("copied the images") == 2


def test_labels_in_parquet_files_have_the_names_of_those_in_tables(tmp_path):
    write_parquet(tmp_path / "a.parquet", range(8), label="category")
    assert dataset(tmp_path / "a.parquet").parts["train"].labels.tolist() == [n % 2 for n in range(8)]
    write_parquet(tmp_path / "b.parquet", range(8), label="height")
    assert dataset(tmp_path / "b.parquet").summary().endswith("(to use labels, name their column label)")


def test_parquet_files_without_images(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"x": [1.0, 2.0]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="has no column of images: found x"):
        dataset(tmp_path / "a.parquet").summary()
    with pytest.raises(UserError, match="no images below"):
        dataset(tmp_path).summary()


def test_videos(tmp_path):
    av = pytest.importorskip("av")
    for colour in (0, 2):
        for n in range(4):
            path = tmp_path / f"clips/{'rgb'[colour]}/{n}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            with av.open(str(path), "w") as file:
                stream = file.add_stream("mpeg4", rate=10)
                stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
                for time in range(20):
                    frame = np.zeros((32, 48, 3), np.uint8)
                    frame[..., colour] = 50 + 10 * time
                    file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
                file.mux(stream.encode())
    found = dataset(tmp_path / "clips", frames=5)
    frames = pixels(found.parts["train"])
    assert len(frames) == 40
    wanted = [50 + 10 * time for time in (2, 6, 10, 14, 18)]  # the middle of five equal parts
    assert np.allclose([frame[2].mean() for frame in frames[:5]], wanted, atol=12)
    assert np.all(np.diff([frame[2].mean() for frame in frames[:5]]) > 20)
    train, held_out = found.split("validation")
    videos = [{str(path).partition("::")[0] for path in part.paths} for part in (train, held_out)]
    assert not videos[0] & videos[1]
    assert train.classes == ("b", "r")
    run = hs.pretrain("byol", data=tmp_path / "clips", frames=3, out=tmp_path / "run", **SMALL)
    assert run.evaluate("knn")["knn"]["top1"] > 0.9
    (tmp_path / "clips/b/bad.mp4").write_bytes(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")
    assert len(embed(run.path, tmp_path / "clips", tmp_path / "v.npz", device="cpu").unreadable) == 16
