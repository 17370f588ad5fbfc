"""``r1lit chat``: talk to a run's policy, or to two side by side, in the terminal.

    r1lit chat runs/aha                     # in the run's own template
    r1lit chat models/search runs/aha       # base and trained, the same questions and seeds
    echo "What is 2 + 3?" | r1lit chat runs/aha

A reply is shown while it is generated. /problem draws a held-out problem of the run's data; its
reply, and that to any other question of these data, is graded by the run's grader. Every reply is
a function of question, temperature and seed; the seed grows by one with each. Ctrl-C ends a reply,
Ctrl-D or /quit leaves. With a chat template the conversation goes on until /new; in other templates
each question is asked by itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from r1lit.console import as_help
from r1lit.errors import did_you_mean, hint

if TYPE_CHECKING:
    from rich.console import Console

    from r1lit.cli.speaker import Reply, Speaker
    from r1lit.cli.trained import Trained
    from r1lit.problems import Problem

COMMANDS = {
    "/problem": "[N]  a held-out problem of the run's data, or the N-th; its reply is graded",
    "/again": "     the last question once more, with the next seed",
    "/temperature": "T  0 takes the likeliest token, 1 samples as training does",
    "/seed": "N     of the next reply",
    "/tokens": "N   the most tokens of a reply",
    "/prompt": "    the last question as the model was given it",
    "/new": "       forget the conversation (chat template)",
    "/help": "      these lines",
    "/quit": "      leave; so does Ctrl-D. Ctrl-C ends a reply",
}
NARROW = 60
"""Columns of a terminal in which two replies do not stand side by side."""


class Parser(argparse.ArgumentParser):
    """Refuses arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise the refusal."""
        _, is_unknown, rest = message.partition("unrecognized arguments: --")
        known = [action.dest for action in self._actions]
        meant = did_you_mean(rest.split()[0].split("=")[0], known) if is_unknown else ""
        raise ValueError(f"{message}{meant}; r1lit chat --help lists what there is")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 2 if a line that came through a pipe was refused, else 0."""
    parser = Parser(prog="r1lit chat", description=as_help(__doc__), allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "models", nargs="+", metavar="RUN", help="a run folder, a policy folder, a name on the hub"
    )
    parser.add_argument("--temperature", type=float, help="that of the run's evaluation, or 0.6")
    parser.add_argument("--top_p", type=float, help="that of the run's evaluation, or 0.95")
    parser.add_argument("--seed", type=int, default=0, help="of the first reply; 0")
    parser.add_argument("--max_tokens", type=int, help="of a reply; as in evaluation, or 1,024")
    parser.add_argument("--template", help="that of the run; else chat, or r1_zero without one")
    given = parser.parse_args(args)
    if len(given.models) > 2:
        raise ValueError(f"run: {len(given.models)} are named; talk to one, or to two side by side")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    print(f"loading {' and '.join(given.models)} …", file=sys.stderr, flush=True)
    speakers, known = load(given)
    from rich.console import Console

    chat = Chat(speakers, known, given.seed, Console(highlight=False, soft_wrap=True))
    return chat.run()


def load(given: Any) -> tuple[list[Speaker], Trained | None]:
    """Return who speaks, and what the first run among them was trained with."""
    from r1lit.cli import hub_is_out_of_reach

    if "huggingface_hub" not in sys.modules and hub_is_out_of_reach():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers.utils.logging import disable_progress_bar

    from r1lit.cli.speaker import Speaker
    from r1lit.cli.trained import policy_of, run_of, trained

    disable_progress_bar()
    paths = [policy_of(path) for path in given.models]  # mistakes come before anything is loaded
    runs = [run_of(path) for path in given.models]
    found = {run: trained(run) for run in runs if run is not None}
    first = next(iter(found.values()), None)
    changes = {key: getattr(given, key) for key in ("temperature", "top_p", "max_tokens")}
    return [
        Speaker(
            name,
            path,
            found.get(run, first) if run is not None else first,
            template=given.template,
            changes={key: value for key, value in changes.items() if value is not None},
        )
        for name, path, run in zip(given.models, paths, runs, strict=True)
    ], first


class Chat:
    """A conversation in the terminal, or through a pipe.

    Args:
        speakers: one or two.
        known: what the run was trained with, if one of them is of a run.
        seed: of the first reply.
        console: where it is written.
    """

    def __init__(
        self, speakers: Sequence[Speaker], known: Trained | None, seed: int, console: Console
    ) -> None:
        self.speakers, self.known, self.console = speakers, known, console
        self.seed = seed
        self.sampling = speakers[0].sampling
        self.last: tuple[str, Problem | None] | None = None
        self.next_problem = 0
        self.stopped = False

    def run(self) -> int:
        """Read lines until there are none; return 2 if one of a pipe was refused."""
        interactive = sys.stdin.isatty()
        refused = False
        self.greet()
        for line in lines_typed() if interactive else lines_piped(self.console):
            try:
                if self.obey(line) == "quit":
                    break
            except KeyboardInterrupt:  # a second Ctrl-C, before the first one was heard
                self.console.print()
            except ValueError as error:
                refused = True
                sys.stdout.flush()
                print(f"r1lit chat: {error}", file=sys.stderr, flush=True)
        return 2 if refused and not interactive else 0

    def greet(self) -> None:
        """Print who speaks, how, and what can be asked."""
        for speaker in self.speakers:
            print(f"{speaker.name}: template {speaker.template_name}", file=sys.stderr)
        if self.known is not None and self.known.problems:
            count, split = len(self.known.problems), self.known.split
            what = "training" if split == "train" else "held-out"
            words = f"/problem draws one of {count} {what} problems (data.{split}); "
        else:
            why = f" ({self.known.why_none})" if self.known is not None else ""
            words = f"no problems to draw{why}; "
        print(f"{self.settings()}; {words}/help lists commands", file=sys.stderr, flush=True)

    def settings(self) -> str:
        """Return temperature, seed and limit in words."""
        sampling = self.sampling
        cuts = "".join(f", {key} {value:g}" for key, value in sampling.cuts.items())
        return (
            f"temperature {sampling.temperature:g}{cuts}, seed {self.seed}, at most"
            f" {sampling.max_tokens} tokens"
        )

    def obey(self, line: str) -> str:
        """Run a line, which is a command or a question; return "quit" to leave.

        Raises:
            ValueError: if it cannot be done.
        """
        text = line.strip()
        if not text:
            return ""
        if not text.startswith("/"):
            self.ask(text, self.find(text))
            return ""
        name, _, argument = text.partition(" ")
        name, argument = {"/exit": "/quit", "/q": "/quit"}.get(name, name), argument.strip()
        if name not in COMMANDS:
            raise ValueError(f"{name} is no command{hint(name, COMMANDS)}")
        if argument and name not in ("/problem", "/temperature", "/seed", "/tokens"):
            raise ValueError(f"{name}: takes no value, and {argument!r} is given")
        method: Callable[[str], object] = getattr(self, f"do_{name[1:]}")
        method(argument)
        return name[1:]

    def find(self, question: str) -> Problem | None:
        """Return the problem of the run's data that a question is."""
        from r1lit.text.prompts import squeezed

        return None if self.known is None else self.known.known.get(squeezed(question))

    def do_problem(self, argument: str) -> None:
        """Ask a problem of the run's data: the next one, or the one of a number."""
        known = self.known
        if known is None or not known.problems:
            why = known.why_none if known is not None else "none of these folders is of a run"
            raise ValueError(f"/problem: there is none: {why}")
        count = len(known.problems)
        number = number_of("/problem", argument, 1, count) if argument else None
        if number is None:
            from r1lit.seeding import permutation

            order = permutation(count, 0, "chat")
            number = order[self.next_problem % count] + 1
            self.next_problem += 1
        problem = known.problems[number - 1]
        self.console.print(f"problem {number} of {count}", style="bold")
        self.console.print(shown(problem.question), markup=False)
        self.ask(problem.question, problem)

    def do_again(self, argument: str) -> None:
        """Ask the last question once more."""
        if self.last is None:
            raise ValueError("/again: nothing has been asked yet")
        for speaker in self.speakers:
            speaker.take_back()
        self.ask(*self.last)

    def do_temperature(self, argument: str) -> None:
        """Set the temperature, or print it."""
        self.change("temperature", argument, float)

    def do_tokens(self, argument: str) -> None:
        """Set the most tokens of a reply, or print them."""
        self.change("max_tokens", argument, int)

    def change(self, key: str, argument: str, kind: Callable[[str], Any]) -> None:
        """Change a key of the sampling, where a value is given; print the settings."""
        if argument:
            try:
                value = kind(argument)
            except ValueError:
                raise ValueError(f"{key}: {argument!r} is no number") from None
            self.sampling = replace(self.sampling, **{key: value})
        self.console.print(self.settings())

    def do_seed(self, argument: str) -> None:
        """Set the seed of the next reply, or print it."""
        if argument:
            self.seed = number_of("/seed", argument, 0)
        self.console.print(self.settings())

    def do_prompt(self, argument: str) -> None:
        """Print the last question as each model was given it, special tokens too."""
        if self.last is None:
            raise ValueError("/prompt: nothing has been asked yet")
        for speaker in self.speakers:
            if len(self.speakers) > 1:
                self.console.print(f"{speaker.name}:", style="bold")
            self.console.print(shown(speaker.last_prompt), markup=False)

    def do_new(self, argument: str) -> None:
        """Forget the conversation."""
        for speaker in self.speakers:
            speaker.forget()
        self.console.print("a new conversation")

    def do_help(self, argument: str) -> None:
        """Print the commands."""
        for name, words in COMMANDS.items():
            self.console.print(f"{name} {words}", markup=False)
        self.console.print("a line that ends in \\ goes on in the next one", markup=False)

    def do_quit(self, argument: str) -> None:
        """Leave."""

    def ask(self, question: str, problem: Problem | None) -> None:
        """Have every speaker reply, and print the verdict where it is a problem of the data."""
        self.last = question, problem
        seed, self.stopped = self.seed, False
        self.seed += 1
        wide = self.console.is_terminal and self.console.width >= NARROW
        with self.ctrl_c_ends_reply():
            if len(self.speakers) > 1 and wide:
                from r1lit.cli.columns import Columns

                with Columns(self.console, [speaker.name for speaker in self.speakers]) as columns:
                    for index, speaker in enumerate(self.speakers):
                        reply = self.listen(speaker, question, problem, seed, columns.write(index))
                        columns.end(index, self.verdict(speaker, reply, problem))
                return
            for speaker in self.speakers:
                if len(self.speakers) > 1:
                    self.console.print(f"{speaker.name}:", style="bold")
                reply = self.listen(speaker, question, problem, seed, self.write)
                self.console.print()
                note = self.verdict(speaker, reply, problem)
                self.console.print(note, markup=False, style="cyan")

    def listen(
        self,
        speaker: Speaker,
        question: str,
        problem: Problem | None,
        seed: int,
        write: Callable[[str, bool], None],
    ) -> Reply:
        """Have one speaker reply, piece by piece, until it or Ctrl-C ends it."""

        def on_text(text: str, thinks: bool) -> bool:
            if text:
                write(shown(text), thinks)
            return not self.stopped

        if self.stopped:  # the first of two was interrupted
            self.stopped = False
        return speaker.reply(question, problem, self.sampling, seed, on_text)

    def write(self, text: str, thinks: bool) -> None:
        """Print a piece of a reply; thinking is dim."""
        self.console.print(text, end="", style="dim" if thinks else None, markup=False, emoji=False)
        self.console.file.flush()

    def verdict(self, speaker: Speaker, reply: Reply, problem: Problem | None) -> str:
        """Return the line below a reply: its verdict, seed, length and speed."""
        parts = []
        if self.stopped:
            parts.append("interrupted")
        elif problem is not None:
            started = time.perf_counter()
            parts.append(speaker.verdict(reply, problem))
            reply = replace(reply, seconds=reply.seconds + time.perf_counter() - started)
        if not self.stopped and not reply.finished:
            parts.append(f"cut at {reply.num_tokens} tokens")
        sampling = f"temperature {self.sampling.temperature:g}, seed {reply.seed}"
        parts += [f"{reply.num_tokens} tokens in {reply.seconds:.1f} s", sampling]
        return f"[{'; '.join(parts)}]"

    @contextmanager
    def ctrl_c_ends_reply(self) -> Iterator[None]:
        """Have the first Ctrl-C end the reply, and a second one whatever is computed."""

        def heard(*_: Any) -> None:
            if self.stopped:
                raise KeyboardInterrupt
            self.stopped = True

        before = signal.signal(signal.SIGINT, heard)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def number_of(key: str, text: str, least: int, most: int | None = None) -> int:
    """Return the whole number that a text is.

    Raises:
        ValueError: if it is none, or not within the bounds.
    """
    within = f"from {least}" + (f" to {most}" if most is not None else " on")
    if not text.lstrip("-").isdecimal() or int(text) < least or (most and int(text) > most):
        raise ValueError(f"{key}: {text!r} is not a whole number {within}")
    return int(text)


CONTROL = {code: "�" for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}
"""Characters that would steer the terminal."""


def shown(text: str) -> str:
    """Return a text without characters that steer a terminal."""
    return text.translate(CONTROL)


def lines_typed() -> Iterator[str]:
    """Yield the typed lines, with the terminal's editing and history; Ctrl-D ends."""
    import readline  # noqa: F401 - input() uses it

    while True:
        try:
            line = input("> ")
            while line.endswith("\\"):
                line = f"{line[:-1]}\n{input('. ')}"
        except KeyboardInterrupt:
            print("\nCtrl-D or /quit leaves")
            continue
        except EOFError:
            print()
            return
        yield line


def lines_piped(console: Console) -> Iterator[str]:
    """Yield the lines of a pipe, each after it is printed as if typed."""
    whole = ""
    for line in sys.stdin:
        whole += line.rstrip("\n")
        if whole.endswith("\\"):
            whole = f"{whole[:-1]}\n"
            continue
        if whole.strip():
            console.print(f"> {shown(whole)}", markup=False)
            yield whole
        whole = ""
