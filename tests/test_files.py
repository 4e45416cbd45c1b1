"""Files that several processes write at the same time."""

import json
import multiprocessing

from hypersphere.files import write_json


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
