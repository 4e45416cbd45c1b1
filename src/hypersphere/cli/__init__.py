"""The command line: `entry` starts it, `commands` lists the commands, and each command has a file of its own.

Commands import torch only when they run, so that help is fast. Nothing imports this package.

May import: bench, config, data, errors, inference, methods, paper, probes, report, runs, sweeps, util.
"""

from hypersphere.cli.entry import main

__all__ = ["main"]
