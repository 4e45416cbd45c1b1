"""Make the pictures of the README and the documentation again: python docs/_tools/pictures.py [NAME …]

They come from real runs on the embedded digits (about five minutes on two cores) and need Chromium for screenshots.
Without names all are made; the names are those of the functions at the end.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.common.by import By

PICTURES = Path(__file__).parents[1] / "pictures"
WIDTH = 92  # characters of a terminal
_REMOTE_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_CONTROL = re.compile(r"\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A")


def run(command: str, *, status: int = 0) -> str:
    """Run a command with colours, and return what it prints."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FORCE_COLOR": "1",
        "COLUMNS": str(WIDTH),
    }
    done = subprocess.run(command, shell=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printed = done.stdout.decode().replace(f"{os.getcwd()}/", "")  # a temporary folder
    if done.returncode != status:
        raise RuntimeError(f"{command}: status {done.returncode}\n{printed}")
    return printed


def terminal(name: str, command: str, *, last: int | None = None, status: int = 0) -> None:
    """Run a command and draw what it prints as NAME.svg; `last`: how many lines to show."""
    printed = run(command, status=status)
    lines = [_CONTROL.sub("", line).rstrip("\r").rpartition("\r")[2] for line in printed.rstrip().split("\n")]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    if last is not None and len(lines) > last:
        console.print(Text("…", "dim"))
        lines = lines[-last:]
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False)
    drawn = console.export_svg(title=command.split(" --")[0], theme=MONOKAI, unique_id=name)
    (PICTURES / f"{name}.svg").write_text(_REMOTE_FONTS.sub("", drawn))


def screenshot(name: str, page: Path, *, height: int, section: str | None = None) -> None:
    """Photograph the top of a page, or its section with a heading, as NAME.png."""
    options = webdriver.ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "hide-scrollbars", "disable-background-networking", "no-first-run"):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options)
    try:
        size = {"width": 1240, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.resolve().as_uri())
        here = f"{page.resolve().parent}/"  # a temporary folder, which is left out of the picture
        browser.execute_script("document.body.innerHTML = document.body.innerHTML.replaceAll(arguments[0], '')", here)
        path = str(PICTURES / f"{name}.png")
        if section is None:
            browser.save_screenshot(path)
        else:
            browser.find_element(By.XPATH, f"//section[h2='{section}']").screenshot(path)
    finally:
        browser.quit()
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def digit_files(folder: Path) -> None:
    """folder/{0,1,…}/*.png: the digits of scikit-learn, four times as large."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(label) / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9375).astype("uint8")).resize((32, 32)).save(path)


def start() -> None:
    terminal("start", "hypersphere")


def demo() -> None:
    terminal("demo", "hypersphere demo", last=24)
    page = Path("runs/demo/report.html")
    screenshot("report", page, height=870)
    screenshot("circle", page, height=900, section="On the circle")
    screenshot("map", page, height=900, section="Map of the embeddings")


def diagnose() -> None:
    run("hypersphere pretrain byol-mhe --data digits --epochs 20 --out runs/digits")
    terminal("diagnose", "hypersphere diagnose runs/digits")


def neighbours() -> None:
    digit_files(Path("digits"))
    run("hypersphere pretrain simclr --data digits --size 32 --encoder hypersphere/digits "
             "--epochs 10 --batch 128 --out runs/folder")  # fmt: skip
    run("hypersphere embed runs/folder digits -o digits.npz")
    queries = " ".join(f"digits/{digit}/{index:04}.png" for digit, index in ((0, 0), (3, 3), (4, 4), (7, 7)))
    run(f"hypersphere neighbours digits.npz {queries} --page near.html")
    screenshot("neighbours", Path("near.html"), height=500)


ALL = (start, demo, diagnose, neighbours)


def main(names: list[str]) -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for make in ALL:
            if not names or make.__name__ in names:
                make()
                print(f"{make.__name__}: done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
