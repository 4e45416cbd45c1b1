"""A diagnosis on the terminal."""

from hypersphere.inference.diagnosis import Diagnosis

_STYLES = {"title": "bold", "sentence": "dim", "layers": "default"}
_COLOURS = {"good": "green", "weak": "yellow", "bad": "red", "": "default"}


def print_diagnosis(found: Diagnosis) -> None:
    """Print a diagnosis to standard output, with a coloured mark before each finding."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for kind, text in found.lines():
        line = Text(text, _STYLES.get(kind, "default"))
        if kind in _COLOURS:
            line.stylize(_COLOURS[kind], 0, 1)  # the mark
        console.print(line, soft_wrap=True)
