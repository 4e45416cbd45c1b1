"""`hypersphere COMMAND …`: starts a command, and turns errors into one line and an exit status."""

import atexit
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from hypersphere.errors import (
    ReportedElsewhere,
    UserError,
    as_command_line,
    closest_name,
    path_errors_as_user_errors,
)
from hypersphere.util.console import rewritten_messages
from hypersphere.util.launcher import is_main_process, launched, local_rank_and_size
from hypersphere.util.standard_streams import lost_output, tolerate_output_errors

LAUNCHER_DELAY = 2.0  # seconds after which a launcher that saw one process end has ended the others

INTRODUCTION = """\
hypersphere: self-supervised representation learning on the unit hypersphere

Five things to do next:
  hypersphere demo                                 train on embedded digits
  hypersphere pretrain --data my/images            train on a folder of images
  hypersphere evaluate runs/RUN                    measure its accuracy
  hypersphere embed runs/RUN my/images -o x.npz    embed every image of a folder
  hypersphere report runs/RUN runs/OTHER           compare runs on an HTML page

hypersphere --help lists all commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of the command line.

    Args:
        arguments: Words after `hypersphere`; by default those that this process was started with.

    Returns:
        The exit status: 0, 1 if some of many runs failed or output was lost, 2 after a user's mistake (one line on
        standard error), or 128 + the number of the signal that stopped the command.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        hypersphere ...
        0
    """
    if arguments is not None:
        return _status(list(arguments))
    status = _status(sys.argv[1:])
    if launched() > 1:
        _exit_at_once(status)
    return status


def _exit_at_once(status: int) -> None:
    """End a process of a job without tearing down Python, where threads of torch's process groups may abort."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _status(words: list[str]) -> int:
    tolerate_output_errors()
    _prepare_torch()
    try:
        with path_errors_as_user_errors(), rewritten_messages(partial(_with_options, words=words)):
            _run(words)
    except ReportedElsewhere:
        return 2
    except UserError as error:
        local_rank = 0 if error.joint else local_rank_and_size()[0]
        if local_rank:  # most mistakes are the same on all ranks, and the first one of a machine prints them
            time.sleep(LAUNCHER_DELAY)
        rank = f"process {local_rank}: " if local_rank else ""
        print(f"hypersphere: {rank}{_with_options(str(error), words)}", file=sys.stderr)
        return getattr(error, "status", 2)
    except KeyboardInterrupt as interrupt:
        if is_main_process():
            print(f"hypersphere: {as_command_line(str(interrupt)) or 'interrupted'}", file=sys.stderr)
        return 128 + getattr(interrupt, "signum", signal.SIGINT)
    except SystemExit:  # of --help
        if not lost_output():
            raise
    if reason := lost_output():
        print(f"hypersphere: could not write to standard output: {reason}", file=sys.stderr)
        return 1
    return 0


def _with_options(message: str, words: list[str]) -> str:
    from hypersphere.cli.commands import arguments

    return as_command_line(message, arguments(words[0]) if words else ())


def _prepare_torch() -> None:
    """Set what torch and OpenMP read from the environment when torch is imported, unless the user has set it."""
    if sys.platform == "darwin":  # torch then says which operators run on the CPU
        os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    if "OMP_WAIT_POLICY" not in os.environ:  # waiting busily is about 4 times slower if others need the CPU
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _run(words: list[str]) -> None:
    from hypersphere.cli.commands import COMMANDS  # not at the top: Ctrl-C must be caught during imports

    command, *rest = words or [""]
    if command == "":
        print(INTRODUCTION)
    elif command in ("-h", "--help", "help"):
        _print_commands()
    elif command == "--version":
        from hypersphere import __version__

        print(f"hypersphere {__version__}")
    elif command in COMMANDS:
        importlib.import_module(f"hypersphere.cli.{command}").run(rest)
    else:
        suggestion = closest_name(command, COMMANDS)
        hint = f"did you mean {suggestion}?" if suggestion else "hypersphere --help lists all commands"
        raise UserError(f"unknown command {command!r}: {hint}")


def _print_commands() -> None:
    from hypersphere.cli.commands import COMMANDS

    print("hypersphere: self-supervised representation learning on the unit hypersphere")
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        print(f"\n{group}:")
        for name, command in COMMANDS.items():
            if command.group == group:
                print(f"  {name:<11} {command.summary}")
    print("\nhypersphere COMMAND --help explains a command.")
