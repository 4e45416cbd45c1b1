"""Random command lines end: with status 0, or with one line that names the option. `make fuzz` tries 2,000."""

import os
import random
import re
import resource
import traceback
import warnings

from hypersphere.cli import main
from tests.fuzz.command_lines import draw_command_line
from tests.fuzz.limits import limited
from tests.fuzz.test_tampered import made  # noqa: F401

SECONDS = 60
COUNT = 2000 if os.environ.get("FUZZ") == "all" else 40


def test_random_command_lines(made, tmp_path, monkeypatch, capfd):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (min(4096, before[1]) if before[1] > 0 else 4096, before[1]))
    draw, failures, statuses, unnamed = random.Random(int(os.environ.get("SEED", 0))), [], {}, []
    for number in range(COUNT):
        here = tmp_path / str(number)
        here.mkdir()
        paths = {name: str(made / name) for name in ("run", "export", "images")}
        paths |= {"vectors": str(made / "vectors" / "vectors.npz"), "image": str(made / "images" / "red" / "01.png")}
        paths |= {"out": str(here / "out"), "file": str(here / "vectors.npz")}
        line = draw_command_line(draw, paths)
        try:
            with limited(SECONDS), warnings.catch_warnings(action="ignore"):
                status = main(line.words)
        except SystemExit as end:
            status = end.code
        except BaseException:
            status = traceback.format_exc()
        err = capfd.readouterr().err
        statuses[status if isinstance(status, int) else "raised"] = statuses.get(status, 0) + 1
        told = [text for text in err.splitlines() if text.startswith("hypersphere: ")]
        if status not in (0, 1, 2) or "Traceback" in err or (status == 2 and not told):
            failures.append(f"{line.words}: {status}\n{err}")
        elif status == 2 and not _names_something(told[-1], line.words):
            unnamed.append(f"{line.words}: {told[-1]}")
    print(f"{COUNT} command lines, statuses {statuses}, {len(failures)} failures, {len(unnamed)} without a name")
    assert not failures, "\n\n".join(failures)
    assert len(unnamed) <= COUNT // 50, "\n".join(unnamed)


def _names_something(message, words):
    """Whether the message names an option, a word of the command line or a file."""
    given = [part for word in words for part in (word, word.partition("=")[2]) if part]
    return bool(re.search(r"--\w|\b[A-Z]{3,}\b|\bmethod\b", message)) or any(word[:40] in message for word in given)
