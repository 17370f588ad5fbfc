"""Languages that are compiled before they run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """``commands`` are programs that can compile, best first; ``flags`` go before the file.

    ``smallest`` is a program that every working compiler accepts.
    """

    commands: tuple[str, ...]
    flags: tuple[str, ...]
    smallest: str


COMPILERS = {
    "c++": Compiler(
        commands=("g++", "clang++"),
        flags=("-std=c++17", "-O2", "-w", "-pipe"),
        smallest="int main() {}",
    ),
}
BINARY = "program.out"


def compiler_of(language: str) -> str | None:
    """Return the path of this machine's compiler for ``language``, or ``None``."""
    for command in COMPILERS[language].commands:
        path = shutil.which(command, path="/usr/bin:/bin")
        if path:
            return path
    return None


def compile_command(language: str, file: str) -> list[str]:
    """Return the command that compiles ``file`` to ``BINARY`` in the current folder.

    Raises:
        ValueError: if this machine has no compiler for it.
    """
    path = compiler_of(language)
    if path is None:
        names = " or ".join(COMPILERS[language].commands)
        raise ValueError(f"language: {language!r} needs {names} in /usr/bin")
    return [path, *COMPILERS[language].flags, "-o", BINARY, file]
