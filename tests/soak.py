"""Long use of one process: memory, open files and files on disk must stay flat.

make soak                                # 10,000 epochs, 200 runs of sweeps and 1,000 report pages: an hour on a core
python -m tests.soak --epochs 1000 --runs 20 --pages 100
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import hypersphere as hs
from hypersphere.report.page import write_report
from tests.networks import SMALL_ENCODER

WARM = 0.3  # share of the time after which growth counts
GROWTH = 0.05  # most growth of memory that counts as flat
SMALL = {
    "hidden": 8,
    "projection": 4,
    "batch": 1024,
    "device": "cpu",
    "encoder": SMALL_ENCODER,
    "data": "digits",
}


class Watch:
    """Samples memory (MB), open files and threads of this process."""

    def __init__(self, title: str, every: float = 1.0) -> None:
        self.title, self.every, self.samples, self.over = title, every, [], threading.Event()

    def __enter__(self) -> "Watch":
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def _run(self) -> None:
        while not self.over.wait(self.every):
            self.samples.append(sample())

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        rest = self.samples[int(WARM * len(self.samples)) :]
        third = max(1, len(rest) // 3)
        # what is open for a moment does not count: the fewest files are those that stay open
        of = (max, min, max)
        first, last = (
            [take(values) for take, values in zip(of, zip(*part, strict=True), strict=True)]
            for part in (rest[:third], rest[-third:])
        )
        words = ", ".join(
            f"{name} {a:,.0f} → {b:,.0f}" for name, a, b in zip(("MB", "files", "threads"), first, last, strict=True)
        )
        print(f"{self.title}: {words}; {time.monotonic() - self.began:.0f} s", flush=True)
        if last[0] > (1 + GROWTH) * first[0] or last[1] > first[1] + 2 or last[2] > first[2] + 2:
            raise SystemExit(f"{self.title}: not flat")


def sample() -> tuple[float, int, int]:
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["VmRSS"].split()[0]) / 1e3, len(os.listdir("/proc/self/fd")), int(status["Threads"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("epochs", 10_000), ("runs", 200), ("pages", 1000)):
        parser.add_argument(f"--{name}", type=int, default=count)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with Watch(f"{options.epochs} epochs"):
            run = hs.pretrain(
                "byol-mhe", epochs=options.epochs, out="run", progress=False, knn_every=50, save_every=20, **SMALL
            )
        assert run.step == options.epochs
        files = sorted(path.name for path in Path("run").iterdir() if not path.name.startswith("."))
        print(f"files of the run: {', '.join(files)}")
        with Watch(f"{options.runs} runs of a sweep"):
            hs.sweep(
                "byol", over={"seed": range(options.runs)}, epochs=2, workers=0, out="sweep", probes=["knn"], **SMALL
            )
        assert len(list(Path("sweep/results").iterdir())) == options.runs
        with Watch(f"{options.pages} report pages"):
            for _ in range(options.pages):
                write_report([run.path], Path("page.html"))
        left = [str(path) for path in Path().rglob("*.part")]
        print(f"temporary files left: {left or 'none'}")
        assert not left


if __name__ == "__main__":
    main()
