from hypersphere.config import option_names
from hypersphere.methods import METHODS
from hypersphere.runs.option_types import RunOptions


def test_every_option_has_a_type_for_editors():
    known = set().union(*map(option_names, METHODS)) - {"method", "data"}
    assert set(RunOptions.__annotations__) == known
