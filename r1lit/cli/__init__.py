"""The command line: ``r1lit fit|validate|test|predict -c …``.

Configurations are composed and help of the whole is printed before Lightning is imported, which
takes seconds.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

import r1lit
from r1lit.cli.composition import SUBCOMMANDS, as_mapping, compose
from r1lit.cli.ranks import ending_together
from r1lit.cli.waiting import counting_seconds
from r1lit.console import run_script
from r1lit.errors import did_you_mean
from r1lit.sigterm import end_after

if TYPE_CHECKING:
    from r1lit.cli.command import R1CLI

HELP = """\
usage: r1lit {fit,validate,test,predict} [-c FILE.yaml ...] [--key value ...]
       r1lit {plan,chat,view,doctor,fork,merge,audit-verifier,
              --version} ...

  r1lit fit       train: reinforcement learning, supervised, distillation,
                  reward models
  r1lit validate  evaluate on data.validation, as a fit does on its way
  r1lit test      evaluate on data.test; EvaluationModule generates k responses
                  to each problem and writes a report
  r1lit predict   generate responses to data.predict and choose among them
  r1lit plan -c FILE ...   memory, tokens and time of a fit, forecast
  r1lit chat RUN  talk to a run's policy, or to two side by side
  r1lit view RUN  one HTML page of a run, or of two side by side
  r1lit doctor RUN    what is wrong in a run, of TRL too, and the key to change
  r1lit fork RUN --at K -c CHANGE --run NEW    go on from iteration K, changed
  r1lit audit-verifier    how often a verifier pays wrong answers, and refuses
                          right ones
  r1lit merge FROM OUT    a whole model of an adapter (LoRA) or a GGUF file

Files are merged in the order of their -c; keys come last.

  --run FOLDER                 where everything is written
  --ckpt_path last             go on with the run in that folder
  --print_config               what files and keys come to, and no more
  r1lit test … --list          which suites would run, on what, with what judge
  r1lit test … --dry-run       and how many problems, prompts and responses
  r1lit fit --help                          every key of trainer and run
  r1lit fit --model.help GRPOModule         every key of a class
  r1lit fit --data.help R1DataModule
  r1lit fit --trainer.callbacks.help CurveWriter

docs/RECIPES.md has thirteen tasks with a command each, docs/CONFIGURATION.md
how files and keys are merged. Other commands: r1lit-score, r1lit-compare,
r1lit-pairs."""


OTHERS = {
    "plan": "r1lit.cli.plan",
    "chat": "r1lit.cli.chat",
    "view": "r1lit.view.page",
    "doctor": "r1lit.cli.doctor",
    "fork": "r1lit.cli.fork",
    "merge": "r1lit.policy.merge",
    "audit-verifier": "r1lit.evaluation.audit",
}
"""The commands that Lightning has no part in: where their ``main`` is."""


def main(args: Sequence[str] | None = None) -> R1CLI:
    """Run one command; tests, sweeps and notebooks call this too.

    Args:
        args: the command line, ``sys.argv[1:]`` if left out.

    Returns:
        The finished CLI, with ``trainer``, ``model`` and ``datamodule``.

    Raises:
        ValueError: naming key, value and what would be right, on bad input.
    """
    given = sys.argv[1:] if args is None else list(args)
    if not any(arg in SUBCOMMANDS for arg in given):
        if {"-h", "--help"} & {*given} or not given:
            print(HELP)
            sys.exit(0 if given else 2)
        if "--version" in given:
            print(f"r1lit {r1lit.__version__}")
            sys.exit(0)
        commands = ", ".join((*SUBCOMMANDS, *OTHERS, "--version"))
        own = OTHER_WORDS.get(given[0], given[0])
        meant = f"; did you mean {own}?" if own in SUBCOMMANDS else did_you_mean(own, SUBCOMMANDS)
        known = meant or f"; there are {commands}"
        raise ValueError(f"{given[0]!r} is no command{known}")
    flag = next((arg for arg in given if arg in PLANS), None)
    if flag is not None:
        show_plan(given, flag)
        sys.exit(0)
    with ending_together():
        composed = compose(given)
        print_start(given, composed)
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        if "huggingface_hub" not in sys.modules and hub_is_out_of_reach():
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # or each file is requested six times
        gc.disable()  # what imports and parsing make stays; R1CLI puts it on once all is made
        try:
            with counting_seconds("loading PyTorch and Lightning"):
                leave_out_of_torchmetrics("scipy.signal")
                from r1lit.cli.command import run_command

            return run_command(composed)
        finally:
            gc.enable()


OTHER_WORDS = {"train": "fit", "finetune": "fit", "sft": "fit", "grpo": "fit", "eval": "test",
               "evaluate": "test", "benchmark": "test", "generate": "predict", "sample": "predict",
               "infer": "predict"}  # fmt: skip
"""Commands of other programs, with the names here."""

LEAVING_S = 3.0
"""Seconds after SIGTERM that the functions have which libraries registered for the end."""

PLANS = ("--list", "--dry-run")
"""Flags of ``r1lit test`` that say what suites would run, and run nothing."""


def show_plan(given: Sequence[str], flag: str) -> None:
    """Print which suites a command would run, or also how much of them, and load no model.

    Raises:
        ValueError: if it is not ``r1lit test`` of suites.
    """
    if given[0] != "test":
        raise ValueError(f"{flag}: is for r1lit test, not {given[0]}")
    composed = compose([arg for arg in given if arg not in PLANS])
    if flag == "--dry-run" and hub_is_out_of_reach():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from r1lit.evaluation.suites.plan import plan

    for line in plan(as_mapping(composed), flag):
        print(line, flush=True)


def print_start(given: Sequence[str], composed: Sequence[str]) -> None:
    """Print command, run folder and configurations: importing the libraries takes seconds."""
    if os.environ.get("LOCAL_RANK", "0") != "0" or {"-h", "--help", "--print_config"} & {*given}:
        return
    run = as_mapping(composed).get("run")
    files = [value for key, value in pairwise(given) if key in ("-c", "--config")]
    names = ", ".join(name for name in files if "\n" not in name)
    where = f"{run or 'no run folder'}, of {names or 'keys alone'}"
    print(f"r1lit {composed[0]}: {where}", file=sys.stderr, flush=True)


def leave_out_of_torchmetrics(name: str) -> None:
    """Import torchmetrics without a library that it loads only to give an old name to.

    scipy.signal is an eighth of the CPU time to a run's first iteration. An attribute of the
    stand-in is the library's.
    """
    if name in sys.modules or "torchmetrics" in sys.modules or not find_spec("scipy"):
        return
    sys.modules[name] = _StandIn(name)
    try:
        import torchmetrics  # noqa: F401
    finally:
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


class _StandIn(ModuleType):
    hamming = None  # the old name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if isinstance(sys.modules.get(self.__name__), _StandIn):
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), attribute)


def hub_is_out_of_reach(host: str = "huggingface.co", wait_s: float = 2.0) -> bool:
    """Return whether this machine cannot resolve the Hub's address and has no proxy."""
    if os.environ.get("HF_ENDPOINT") or getproxies():
        return False
    unknown = []

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            unknown.append(host)

    thread = threading.Thread(target=look_up, daemon=True)  # a silent server of names may hang
    thread.start()
    thread.join(wait_s)
    return bool(unknown)


def run() -> None:
    """Run the console script; while it ends, Ctrl-C does nothing.

    After SIGTERM the process ends without Python's own farewell, in which a thread that waits for a
    server is waited for, and gloo takes its time with the connections of other ranks.
    """
    try:
        name = sys.argv[1] if len(sys.argv) > 1 else ""
        if name in OTHERS:
            run_script(f"r1lit {name}", lambda: _run_other(OTHERS[name]))
        else:
            run_script("r1lit", main)
    except SystemExit as stop:
        if stop.code == 128 + signal.SIGTERM:
            threading.Thread(target=end_after, args=(LEAVING_S,), daemon=True).start()
            atexit._run_exitfuncs()
            end_after(0)
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_other(module: str) -> None:
    status = import_module(module).main(sys.argv[2:])
    if isinstance(status, int):
        sys.exit(status)
