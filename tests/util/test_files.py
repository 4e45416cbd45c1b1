"""Files that several processes write at the same time, and that others than Python read."""

import json
import multiprocessing

from hypersphere.util.files import write_json


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


def test_what_is_no_number_is_null(tmp_path):
    write_json(tmp_path / "a.json", {"a": [1.5, float("nan"), {"b": float("inf")}], "c": (True, None, "x")})

    def refuse(word):
        raise AssertionError(word)

    found = json.loads((tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert found == {"a": [1.5, None, {"b": None}], "c": [True, None, "x"]}
