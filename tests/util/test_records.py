"""JSON files whose content is not what we wrote."""

from typing import Any, Literal, NotRequired, TypedDict

import pytest

from hypersphere.errors import UserError
from hypersphere.util.records import check_record, read_record


class Part(TypedDict):
    names: list[str]
    labels: list[int] | None


class Record(TypedDict):
    kind: Literal["a", "b"]
    size: int
    scale: NotRequired[float | None]
    part: Part
    free: NotRequired[Any]


GOOD = {"kind": "a", "size": 3, "scale": 1, "part": {"names": ["x"], "labels": None}, "more": object}


def test_what_fits_is_returned():
    assert check_record(GOOD, Record) is GOOD
    assert check_record({**GOOD, "part": {"names": [], "labels": [1, 2]}, "free": [{}]}, Record)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "c"}, "kind must be a or b, got 'c'"),
        ({"size": "3"}, "size must be a whole number, got '3'"),
        ({"size": True}, "size must be a whole number, got True"),
        ({"size": 1.5}, "size must be a whole number, got 1.5"),
        ({"scale": "x"}, "scale must be a number or null, got 'x'"),
        ({"part": []}, r"part must be an object, got \[\]"),
        ({"part": {"names": ["x", 3], "labels": None}}, r"part.names\[1\] must be a text, got 3"),
        ({"part": {"names": [], "labels": ["x"]}}, "part.labels must be a list or null, got"),
        ({"part": {"names": []}}, "part.labels is missing"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        check_record({**GOOD, **change}, Record)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"x"', "{}", "[" * 100_000, "\x00", '{"kind": 1e999}'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"^.*a.json is damaged \(.+\)$"):
        read_record(tmp_path / "a.json", Record)
    with pytest.raises(UserError, match=r"b.json does not exist"):
        read_record(tmp_path / "b.json", Record)
