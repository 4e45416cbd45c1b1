"""The command line: `entry` starts it, `commands` lists the commands, and each command has a file of its own.

May import everything; nothing imports it. Commands import torch only when they run, so that help is fast.
"""

from hypersphere.cli.entry import main

__all__ = ["main"]
