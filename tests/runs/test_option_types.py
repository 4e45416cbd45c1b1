from hypersphere.config import option_names
from hypersphere.methods import METHODS
from hypersphere.runs.option_types import RunOptions


def test_every_option_has_a_type_for_editors():
    known = set().union(*map(option_names, METHODS)) - {"method", "data"}
    typed = set(RunOptions.__annotations__)
    assert not known - typed, f"add {', '.join(known - typed)} to RunOptions in runs/option_types.py"
    assert not typed - known, f"remove {', '.join(typed - known)} from RunOptions in runs/option_types.py"
