"""What a CSV file says of images: labels, a split, and groups that are held out as a whole."""

import json

import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.data import Dataset, DataSpec
from hypersphere.data.file_datasets import classes_in_words
from hypersphere.data.folder import Listing
from hypersphere.data.label_table import parts_from
from hypersphere.data.splits import held_out_of
from hypersphere.errors import UserError
from hypersphere.util.console import notify_once
from tests.pictures import draw


def listed(folder, text, count=4, encoding="utf-8"):
    """The parts of a.jpg, b.jpg, … by this table."""
    (folder / "labels.csv").write_text(text, encoding=encoding)
    files = Listing(tuple(folder / f"{letter}.jpg" for letter in "abcdefgh"[:count]))
    return parts_from(folder / "labels.csv", files, folder)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])  # as Excel writes it, and others
def test_labels(tmp_path, encoding):
    found = listed(tmp_path, f"path,label\na.jpg,grün\n{tmp_path}/b.jpg,rot\nd.jpg,\n", encoding=encoding)
    assert found.keys() == {"train"}
    assert (found["train"].classes, found["train"].labels.tolist()) == (("grün", "rot"), [0, 1, -1, -1])
    assert found["train"].groups is None


def test_spaces_around_what_is_said_are_none_of_it(tmp_path):
    rows = "a.jpg, cat, p1 \nb.jpg ,cat,p1\n c.jpg,\tdog,\nd.jpg,dog, \n"
    found = listed(tmp_path, "path, label ,group\n" + rows, count=4)["train"]
    assert (found.classes, found.labels.tolist()) == (("cat", "dog"), [0, 0, 1, 1])
    assert found.groups.tolist() == [0, 0, 1, 2]


def test_rows_that_say_the_same_twice_do_no_harm(tmp_path):
    found = listed(tmp_path, f"path,label\na.jpg,x\n{tmp_path}/a.jpg, x\nb.jpg,y\n", count=2)
    assert found["train"].labels.tolist() == [0, 1]


def test_rows_without_an_image_are_told_once(tmp_path, capsys):
    for _ in range(2):
        found = listed(tmp_path, "path,label\na.jpg,x\nb.JPG,y\nc.JPG,y\n")
        assert found["train"].labels.tolist() == [0, -1, -1, -1]
    (told,) = capsys.readouterr().err.splitlines()
    assert told.endswith(f"labels.csv: 2 rows without an image, such as {tmp_path}/b.JPG")


def test_a_split(tmp_path):
    found = listed(tmp_path, "Path,label , Split\na.jpg,x,Train\nb.jpg,y,validation\nc.jpg,x,test\n")
    names = {part: [path.name for path in files.paths] for part, files in found.items()}
    assert names == {"train": ["a.jpg", "d.jpg"], "val": ["b.jpg"], "test": ["c.jpg"]}
    assert [files.labels.tolist() for files in found.values()] == [[0, -1], [1], [0]]
    assert all(files.classes == ("x", "y") for files in found.values())


def test_folders_of_a_split_stay_one_with_a_table(tmp_path):
    """Unless its column says otherwise."""
    for name in ("Train/a.jpg", "Train/b.jpg", "test/c.jpg", "test/d.jpg", "e.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    for column, wanted in (("", {"train": "abe", "test": "cd"}), (",split", {"train": "abce", "test": "d"})):
        rows = f"Train/a.jpg,a{',' * bool(column)}\ntest/c.jpg,c{',train' * bool(column)}\n"
        (tmp_path / "labels.csv").write_text(f"path,label{column}\n{rows}")
        found = Dataset.resolve(DataSpec(str(tmp_path), labels=str(tmp_path / "labels.csv"))).parts
        assert {part: "".join(sorted(path.stem for path in files.paths)) for part, files in found.items()} == wanted


def test_classes_are_those_of_images_that_are_there(tmp_path):
    found = listed(tmp_path, "path,label\na.jpg,x\nb.jpg,y\nelsewhere.jpg,z\n", count=3)["train"]
    assert found.classes == ("x", "y")


def test_a_link_may_stand_in_either_path(tmp_path):
    for name in "abcd":
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / f"images/{name}.jpg")
    (tmp_path / "link").symlink_to("images")
    for given, said in (("images", "link"), ("link", "images")):
        rows = "".join(f"{tmp_path}/{said}/{name}.jpg,{name}\n" for name in "abc")
        (tmp_path / "labels.csv").write_text(f"path,label\n{rows}")
        found = Dataset.resolve(DataSpec(str(tmp_path / given), labels=str(tmp_path / "labels.csv"))).parts["train"]
        assert found.labels.tolist() == [0, 1, 2, -1]
        assert found.paths[0] == tmp_path / given / "a.jpg"


def test_groups(tmp_path):
    """What is of none is a group of its own."""
    found = listed(tmp_path, "path,label,group\na.jpg,x,anna\nb.jpg,y,\nc.jpg,x,anna\nd.jpg,y,ben\n", count=5)["train"]
    a, b, c, d, e = found.groups.tolist()
    assert a == c
    assert len({a, b, d, e}) == 4
    assert found[torch.tensor([2, 3])].groups.tolist() == [c, d]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("path,label,split\na.jpg,x,holdout\n", "split must be train, val or test, got 'holdout'"),
        (
            "path,label,split\n" + "".join(f"{c}.jpg,x,test\n" for c in "abcd"),
            "has no training images: set some rows to train",
        ),
        (
            "path,label\na.jpg,x\nb.jpg,x\n./a.jpg,y\n",
            "two rows of .*a.jpg differ in label, 'x' and 'y': remove one of them",
        ),
        ("path,label,split\na.jpg,x,test\na.jpg,x,\n", "two rows of .*a.jpg differ in split, 'test' and ''"),
        ("path,split\na.jpg,train\n", "must have a header with the columns path and label"),
        (
            "path,label,split\na.jpg,x,\nb.JPG,x,test\n",
            "1 row without an image, such as .*b.JPG, and 3 images without a row",
        ),
        ("path,label,split,group\na.jpg,x,train,p\nb.jpg,x,test,p\n", "group 'p' is in both train and test: keep"),
        ("path,Age\na.jpg,7\n", r"found path, Age: rename one; missing: label \(or class, target, category, .*, y\)"),
        ("Label\nx\n", r"found Label: rename one; missing: path \(or filename, file_name, .*, id\)"),
        ("a,b\nx,y\n", r"missing: path \(or .*\) and label \(or .*\)"),
        ("path,label\na.jpg,x\nb.jpg,cat, black\n", "line 3 has 3 cells, but the header has 2: quote texts"),
        ("path,label\na.jpg,x\n\nb.jpg\n", "line 4 has 1 cell, but the header has 2: quote texts"),
    ],
)
def test_mistakes(tmp_path, text, told):
    with pytest.raises(UserError, match=told):
        listed(tmp_path, text)


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_held_out_as_a_whole(seed):
    torch.manual_seed(seed)
    groups, classes = torch.randint(40, (600,)), 1 + seed % 4
    labels = torch.randint(-1, classes, (600,))
    rest, some = held_out_of(labels, 600, groups)
    assert sorted([*rest.tolist(), *some.tolist()]) == list(range(600))
    assert not set(groups[rest].tolist()) & set(groups[some].tolist())
    for number in range(classes):
        held_out, of = int((labels[some] == number).sum()), int((labels == number).sum())
        assert min(50, of // 5) <= held_out <= of // 2
    assert torch.equal(some, held_out_of(labels, 600, groups)[1])


@pytest.mark.parametrize("unlabelled", [0, 79, 979, 99_979])
def test_what_is_held_out_has_a_label_where_a_class_has_one_image(unlabelled):
    """Of 21 labelled images one in five, however many others there are and wherever they lie."""
    labels = torch.cat([torch.arange(20) % 4, torch.full((unlabelled,), -1), torch.tensor([4])])
    rest, some = held_out_of(labels, len(labels))
    assert len(some) == 4
    assert (labels[some] >= 0).all()
    assert sorted([*rest.tolist(), *some.tolist()]) == list(range(len(labels)))


@pytest.mark.parametrize(
    ("counts", "held_out"),
    [
        ((1000, 1000, 1000), (50, 50, 50)),
        ((1000, 1000, 3), (50, 50, 1)),
        ((5000, 200, 9, 2, 1), (250, 40, 1, 1, 0)),
        ((3000,), (500,)),
    ],
)
def test_of_each_class_a_share_by_its_size(counts, held_out, capsys):
    """However rare one is; and of a class of one image none, for what is held out is measured by what is left."""
    notify_once.cache_clear()
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    rest, some = held_out_of(labels, len(labels))
    assert labels[some].bincount(minlength=len(counts)).tolist() == list(held_out)
    assert sorted([*rest.tolist(), *some.tolist()]) == list(range(len(labels)))
    told = "1 of 5 classes have only one image, which is used for training"
    assert (told in capsys.readouterr().err) == (1 in counts)


def test_of_few_with_one_class_of_several_two_are_held_out_of_it(capsys):
    notify_once.cache_clear()
    labels = torch.tensor([0] * 5 + [1])
    _, some = held_out_of(labels, 6)
    assert labels[some].tolist() == [0, 0]
    assert "1 of 2 classes have only one image, which is used for training" in capsys.readouterr().err


def test_labels_that_are_all_different_are_told(capsys):
    notify_once.cache_clear()
    rest, some = held_out_of(torch.arange(240), 240)
    assert (len(rest), len(some)) == (192, 48)
    assert "no class has more than one image: accuracy cannot be measured with these labels" in capsys.readouterr().err


@pytest.mark.parametrize("known", [[0], [0, 0], [0, 1, 2]])
def test_too_few_labels_to_hold_some_out(known):
    labels = torch.tensor([*known, *[-1] * 100])
    with pytest.raises(
        UserError, match=r"too few labelled images \(\d\): label four or more, so that two can be held out, or none"
    ):
        held_out_of(labels, len(labels))


@pytest.mark.parametrize("others", [1, 2, 5, 9])
@pytest.mark.parametrize("place", [0, 1])
def test_a_large_group_is_learnt_from(others, place):
    sizes = [1000, *[20] * others][:: 1 - 2 * place]
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rest, some = held_out_of(torch.zeros(len(groups), dtype=torch.int64), len(groups), groups)
    assert len(rest) >= 1000
    assert len(some) == 20 * min(others, 3)  # one in twenty, or more


def test_every_class_is_left_to_learn_from():
    labels, groups = torch.tensor([0, 0, 0, 1, 1, 1, 2]), torch.tensor([0, 1, 2, 2, 3, 3, 4])
    rest, some = held_out_of(labels, 7, groups)
    assert set(labels[rest].tolist()) == {0, 1, 2}
    assert len(some) > 0
    with pytest.raises(UserError, match="cannot hold out any group"):
        held_out_of(torch.tensor([0, 0, 1, 1]), 4, torch.tensor([0, 0, 1, 1]))


def test_a_run_keeps_patients_apart(tmp_path, capsys):
    paths = draw(tmp_path / "scans", 40)
    patient = {path: n % 10 for n, path in enumerate(paths)}
    rows = "".join(f"{path},{'ill' if n % 4 == 0 else 'well'},p{patient[path]}\n" for n, path in enumerate(paths))
    (tmp_path / "labels.csv").write_text("path,label,group\n" + rows)
    options = {"encoder": "hypersphere/digits", "size": 16, "hidden": 16, "projection": 8, "batch": 8, "epochs": 1}
    labels = str(tmp_path / "labels.csv")
    run = hs.pretrain(
        "byol",
        data=str(tmp_path / "scans"),
        labels=labels,
        out=tmp_path / "run",
        device="cpu",
        progress=False,
        **options,
    )
    assert "2 classes: ill, well; 10 groups, never split" in capsys.readouterr().err
    files = json.loads((run.path / "files.json").read_text())
    learnt, held_out = ({patient[tmp_path / name] for name in files[part]["names"]} for part in ("learnt", "held_out"))
    assert learnt | held_out == set(range(10))
    assert not learnt & held_out
    assert held_out


def test_images_that_are_learnt_from_are_not_called_held_out(tmp_path, capsys):
    """Where the table has labels of the test images alone."""
    paths = draw(tmp_path / "scans", 24)
    rows = "".join(
        f"{path},{'' if n % 2 else 'xy'[n % 4 // 2]},{'train' if n % 2 else 'test'}\n" for n, path in enumerate(paths)
    )
    (tmp_path / "labels.csv").write_text("path,label,split\n" + rows)
    options = {"encoder": "hypersphere/digits", "size": 16, "hidden": 16, "projection": 8, "batch": 8, "epochs": 1}
    hs.pretrain(
        "byol",
        data=tmp_path / "scans",
        labels=tmp_path / "labels.csv",
        out=tmp_path / "run",
        device="cpu",
        progress=False,
        **options,
    )
    assert "12 training images, 12 of them monitored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "table",
    [
        "filename,class\na.jpg,x\nb.jpg,y\n",
        "image_id;target\na;x\nb;y\n",
        "File\tCategory\nelsewhere/a.jpg\tx\nelsewhere/b.jpg\ty\n",
        "id,note,label\na,hello,x\nb,there,y\n",
    ],
)
def test_other_names_and_separators(tmp_path, table):
    found = listed(tmp_path, table, count=2)["train"]
    assert (found.classes, found.labels.tolist()) == (("x", "y"), [0, 1])


def test_columns_that_are_not_understood_are_named(tmp_path):
    with pytest.raises(
        UserError, match="must have a header with the columns path and label, found foo, bar: rename them"
    ):
        listed(tmp_path, "foo,bar\na.jpg,x\n")


def test_text_in_another_encoding_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"labels.csv is not UTF-8 text \(.*0xfc.*\): save it as CSV UTF-8"):
        listed(tmp_path, "path,label\na.jpg,grün\n", encoding="latin-1")


def test_empty_cells_at_the_end_may_be_left_out_or_be_too_many(tmp_path):
    found = listed(tmp_path, "path,label,group\na.jpg,x\nb.jpg,y,p,,\nc.jpg,x,p\n", count=3)["train"]
    assert found.labels.tolist() == [0, 1, 0]
    assert found.groups.tolist() == [0, 1, 1]


@pytest.mark.parametrize("column", ["Patient", "patient_id", "Patient ID", "subject", "lesion_id", "Group"])
def test_names_of_a_column_of_groups(column, tmp_path):
    found = listed(tmp_path, f"path,label,{column}\na.jpg,x,anna\nb.jpg,y,ben\nc.jpg,x,anna\n", count=3)["train"]
    assert found.groups.tolist() == [0, 1, 0]


def test_a_column_with_one_value_is_no_group(tmp_path):
    found = listed(tmp_path, "path,label,patient,subject\na.jpg,x,1,ann\nb.jpg,y,1,ben\n", count=2)["train"]
    assert found.groups.tolist() == [0, 1]  # by subject


def test_unused_columns_are_named(tmp_path, capsys):
    found = listed(tmp_path, ",path,label,Clinic,patient_id,Patient\n0,a.jpg,x,A,1,2\n1,b.jpg,y,B,1,3\n", count=2)
    assert found["train"].groups.tolist() == [0, 1]
    taken, unused = capsys.readouterr().err.splitlines()
    assert taken.endswith("labels.csv: uses the columns Patient for group")
    assert unused.endswith("labels.csv: unused columns: Clinic, patient_id")


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        (range(101), True),
        (range(100), False),
        ([n / 2 for n in range(21)], True),
        ([f"class {n}" for n in range(200)], False),
    ],
)
def test_numbers_that_look_measured_are_named(labels, warned, tmp_path, capsys):
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(f"{n}.jpg,{x}\n" for n, x in enumerate(labels)))
    files = Listing(tuple(tmp_path / f"{n}.jpg" for n in range(len(labels))))
    assert len(parts_from(tmp_path / "labels.csv", files, tmp_path)["train"].classes) == len(labels)
    warning = f"each of {len(labels)} different numbers is a class: if they are measured values, put them into"
    assert (warning in capsys.readouterr().err) == warned


def test_one_class_is_named_as_too_few():
    files = Listing(("a.png", "b.png"), torch.tensor([0, -1]), ("x",))
    assert classes_in_words(files) == "1 class, too few to measure accuracy: x; 1 image without a label"
