"""Files that several processes write at the same time, and that others than Python read."""

import json
import multiprocessing
import threading

import pytest

from hypersphere.errors import UserError
from hypersphere.util import files
from hypersphere.util.files import put_in_place, write_json


def write_often(path, value):
    for _ in range(100):
        write_json(path, {"by": [value] * 500})


def test_each_writes_the_whole(tmp_path):
    path = tmp_path / "shared.json"
    write_json(path, {"by": [0]})
    processes = [multiprocessing.get_context("fork").Process(target=write_often, args=(path, n)) for n in (1, 2)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        json.loads(path.read_text())
    assert [process.exitcode for process in processes] == [0, 0]
    assert [file.name for file in tmp_path.iterdir()] == ["shared.json"]


def test_a_file_that_is_taken_for_a_leftover_is_written_again(tmp_path, monkeypatch):
    """Another writer has locked it between its creation and its lock, and removes it."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "0" * 2 * count)
    scratch = tmp_path / f"a.json.{'0' * 8}.part"
    with scratch.open("ab") as other:
        files._lock(other)

        def remove() -> None:
            scratch.unlink()
            other.close()

        threading.Timer(0.1, remove).start()
        write_json(tmp_path / "a.json", {"written": True})
    assert json.loads((tmp_path / "a.json").read_text()) == {"written": True}


def test_what_is_no_number_is_null(tmp_path):
    write_json(tmp_path / "a.json", {"a": [1.5, float("nan"), {"b": float("inf")}], "c": (True, None, "x")})

    def refuse(word):
        raise AssertionError(word)

    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert found == {"a": [1.5, None, {"b": None}], "c": [True, None, "x"]}


def hold(path, started, go_on):
    with put_in_place(path, alone=True) as scratch:
        scratch.write_text("first")
        started.set()
        go_on.wait(60)


def test_one_writer_at_a_time(tmp_path):
    """A second writer of a long file is refused; one that was killed is not in the way."""
    context, path = multiprocessing.get_context("fork"), tmp_path / "a.parquet"
    for end in ("finishes", "is killed"):
        started, go_on = context.Event(), context.Event()
        first = context.Process(target=hold, args=(path, started, go_on))
        first.start()
        started.wait(60)
        with (
            pytest.raises(UserError, match=r"a.parquet is being written by another process"),
            put_in_place(path, alone=True),
        ):
            pass
        if end == "finishes":
            go_on.set()
            first.join()
            assert path.read_text() == "first"
        else:
            first.kill()
            first.join()
            assert (tmp_path / "a.parquet.part").exists()
        with put_in_place(path, alone=True) as scratch:
            scratch.write_text("second")
        assert path.read_text() == "second"
        assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    path, dead = tmp_path / "a.json", tmp_path / "a.json.0123abcd.part"
    dead.write_text("half")
    (tmp_path / "a.json.notes.part").write_text("of somebody else")
    with put_in_place(path) as scratch:
        scratch.write_text("slow")
        assert not dead.exists()
        write_json(path, {"quick": 1})
        assert scratch.read_text() == "slow"
    assert path.read_text() == "slow"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.json.notes.part"]


def test_a_failed_write_leaves_the_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("before")
    with (
        pytest.raises(UserError, match=r"could not write .*a.json: No space left.*; the one before is untouched"),
        put_in_place(path),
    ):
        raise OSError(28, "No space left on device")
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
