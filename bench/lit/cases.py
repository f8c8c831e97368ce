"""The cases of lit test files: each function with what it names, the passes of the RUN lines, and its CHECK lines."""

from __future__ import annotations

import io
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)
_NAMED = re.compile(r"@([\w.$-]+)")
_FUNCTION = re.compile(r"^\s*func\.func\b[^@]*@([\w.$-]+)")
_BEGINS = re.compile(r"^\s*(?:func\.func\b|sdy\.mesh\b|#\w|module\b)")
_DEFINED = re.compile(r"^(?:sdy\.mesh @|#)([\w.$-]+)")
#: Flags of the peers' tools that are no passes; what they allow or print is no matter here.
_FLAGS = ("split-input-file", "verify-diagnostics", "allow-unregistered-dialect", "mlir-print-local-scope")


@dataclass(frozen=True)
class Run:
    """A RUN line: the passes, as ``-pass='option=value'`` gives them, and the prefixes of the lines that check them."""

    passes: tuple[tuple[str, str], ...]
    prefixes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(name + (f"{{{options}}}" if options else "") for name, options in self.passes)


@dataclass(frozen=True)
class Case:
    """A module cut from a test file, and the file's runs. name: of the file and of the function that it is of."""

    name: str
    function: str
    text: str
    runs: tuple[Run, ...]

    @cached_property
    def code(self) -> str:
        """The module without comments."""
        return _code(self.text)

    def checked(self, output: str, run: Run) -> bool | None:
        """Whether an output is what the case's CHECK lines say; None where there are none."""
        from filecheck.matcher import Matcher
        from filecheck.options import Options

        if not any(re.search(rf"//\s*{re.escape(p)}(-[A-Z]+)?:", self.text) for p in run.prefixes):
            return None
        with tempfile.TemporaryDirectory() as folder:
            checks, printed = Path(folder, "checks.mlir"), Path(folder, "output.mlir")
            checks.write_text(self.text)
            printed.write_text(output)
            matcher = Matcher.from_opts(Options(str(checks), str(printed), list(run.prefixes)))
        matcher.stderr = io.StringIO()
        return matcher.run() == 0


def cases(root: Path, tool: str) -> Iterator[Case]:
    """The cases of all files below a folder whose RUN lines call a tool on the file itself, in the order of paths."""
    for path in sorted(root.rglob("*.mlir")):
        text = path.read_text()
        runs = tuple({str(run): run for run in sorted(runs_of(text, tool), key=lambda run: len(run.prefixes))}.values())
        if runs:
            yield from _cut(str(path.relative_to(root)), text, runs)


def runs_of(text: str, tool: str) -> Iterator[Run]:
    """The RUN lines of a file that give the file to a tool, with or without FileCheck behind it."""
    joined = re.sub(r"\\\n//\s*RUN:", " ", text)
    for line in re.findall(r"^//\s*RUN:\s*(.*)$", joined, re.MULTILINE):
        command, *rest = line.replace("2>&1", "").split("|")
        words = shlex.split(command)
        if words and words[0] == tool and "%s" in words and not any("sed" in r or "diff" in r for r in rest):
            given = [w.lstrip("-").partition("=") for w in words[1:] if w.startswith("-") and w.strip("-")]
            passes = tuple((name, options.strip("\"'")) for name, _, options in given if name not in _FLAGS)
            yield Run(passes, _prefixes(rest))


def _prefixes(commands: list[str]) -> tuple[str, ...]:
    for command in commands:
        if "FileCheck" in command:
            found = re.search(r"--?check-prefix(?:es)?[= ]([\w,-]+)", command)
            return tuple(found[1].split(",")) if found else ("CHECK",)
    return ()


def _cut(name: str, text: str, runs: tuple[Run, ...]) -> Iterator[Case]:
    """One case for each function that no other names, with the functions, meshes and aliases that it names."""
    for number, chunk in enumerate(_SPLIT.split(text)):
        pieces = list(_pieces(chunk))
        functions = {function: piece for function, piece in pieces if function}
        named = {f: {n for n in _NAMED.findall(_code(piece)) if n in functions and n != f}
                 for f, piece in functions.items()}
        called = set().union(*named.values()) if named else set()
        for function in [f for f in functions if f not in called] or list(functions)[:1]:
            kept = _reached(function, named)
            taken = "".join(piece for f, piece in pieces if f in kept)
            around = "".join(piece for f, piece in pieces if not f and _needed(piece, taken))
            yield Case(f"{name}:{function}" + (f"#{number}" if number else ""), function, around + taken, runs)


def _code(text: str) -> str:
    return re.sub(r"//.*", "", text)


def _reached(function: str, named: dict[str, set[str]]) -> set[str]:
    """A function, and those that it names, by way of others too."""
    reached, new = {function}, [function]
    while new:
        new = [f for f in named[new.pop()] if f not in reached] + new
        reached.update(new)
    return reached


def _needed(piece: str, functions: str) -> bool:
    """Whether a definition outside functions is one that they use; all that is neither mesh nor alias is."""
    code = _code(piece).strip()
    found = _DEFINED.match(code)
    return bool(code) and (found is None or re.search(rf"[@#]{re.escape(found[1])}\b", functions) is not None)


def _pieces(chunk: str) -> Iterator[tuple[str, str]]:
    """What stands at the left margin, one by one, each with the comments above it: a function's name, or none.

    A function ends with its body, which is the first braces outside others that no ``attributes`` stands before; one
    without a body ends where the next piece begins.
    """
    held, function, depth, body = "", "", 0, False
    for line in chunk.splitlines(keepends=True):
        code = _code(line)
        begins = depth == 0 and _BEGINS.match(code)
        if begins and function:
            yield function, held
            held, function = "", ""
        if begins and (found := _FUNCTION.match(code)):
            function = found[1]
        held += line
        ended = False
        for before, bracket in re.findall(r"(\w*)\s*([(\[{}\])])", re.sub(r'"[^"]*"', "", code)):
            opens = bracket in "([{"
            body = body and depth > 0 or (bracket == "{" and depth == 0 and before != "attributes")
            depth += 1 if opens else -1
            ended |= body and depth == 0
        if ended if function else depth == 0 and code.strip():
            yield function, held
            held, function = "", ""
    if function:
        yield function, held
