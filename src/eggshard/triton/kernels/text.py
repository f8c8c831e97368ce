"""Reader and writer of MLIR's generic form: ``"name"(%ops) <{properties}> ({regions}) {attributes} : types``.

Attributes are cut out where they end, without being understood; aliases of layouts are expanded when read, and those of
locations are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Block, Kernel, Operation, Region, TensorType, Type, Value

_ALIAS = re.compile(r"^([#!][A-Za-z_][\w$-]*)\s*=\s*(.*)$")
_USE = re.compile(r'"(?:[^"\\]|\\.)*"|[#!][A-Za-z_][\w$-]*(?![\w$.<-])')
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>$", re.DOTALL)
_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w$.-]*')
_VALUE = re.compile(r"%[\w$.-]+")
_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_OPENING, _CLOSING = "([{<", ")]}>"


def read_type(text: str) -> Type:
    """A type from its text, aliases expanded."""
    text = text.strip()
    found = _TENSOR.match(text)
    if not found:
        return text
    shape = tuple(int(n) for n in found[1].split("x")[:-1])
    end = scan(found[2], 0, ",")
    encoding = found[2][end + 1:].strip() if end < len(found[2]) else None
    return TensorType(shape, found[2][:end].strip(), encoding)


def without_encodings(text: str) -> str:
    """An attribute's text with the encodings left out of the tensor types in it."""
    parts, at = [], 0
    while (start := text.find("tensor<", at)) >= 0:
        end = scan(text, start + len("tensor<"), ">") + 1
        type_ = read_type(text[start:end])
        assert isinstance(type_, TensorType)
        parts += [text[at:start], str(type_._replace(encoding=None))]
        at = end
    return "".join([*parts, text[at:]])


def scan(text: str, start: int, stops: str) -> int:
    """Where the first of ``stops`` stands outside of brackets and strings from ``start``; the end if nowhere."""
    depth, i = 0, start
    while i < len(text):
        char = text[i]
        if char == '"':
            i = _string_end(text, i)
            continue
        if depth == 0 and char in stops:
            return i
        if char == "-" and text[i + 1: i + 2] == ">":
            i += 2
            continue
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        i += 1
    return len(text)


def _string_end(text: str, start: int) -> int:
    i = start + 1
    while text[i] != '"':
        i += 2 if text[i] == "\\" else 1
    return i + 1


def split(text: str, separator: str = ",") -> list[str]:
    """The parts of a text between separators outside of brackets and strings; [] for blank text."""
    parts, start = [], 0
    while start <= len(text):
        end = scan(text, start, separator)
        parts.append(text[start:end].strip())
        start = end + 1
    return parts if any(parts) else []


def entries(text: str) -> dict[str, str]:
    """The entries of an attribute dictionary's inside; a unit attribute has the value ``unit``."""
    found = {}
    for part in split(text):
        name = _NAME.match(part)
        if not name:
            raise ProgramError(f"not an attribute: {part[:80]!r}")
        rest = part[name.end():].lstrip()
        found[name[0].strip('"')] = rest[1:].strip() if rest.startswith("=") else "unit"
    return found


def read_generic(text: str) -> Kernel:
    """The kernel of a module in generic form.

    Raises `ProgramError` where the text is not one (the pretty form is not read here: `triton.frontend.load`).
    """
    lines = text.splitlines()
    layouts: dict[str, str] = {}
    kept: dict[str, str] = {}

    def expand(line: str) -> str:
        return _USE.sub(lambda use: layouts.get(use[0], use[0]), line)

    body = []
    for line in lines:
        alias = _ALIAS.match(line)
        if alias and not alias[1].startswith("#loc"):
            layouts[alias[1]] = expand(alias[2])
        elif alias:
            kept[alias[1]] = alias[2]
        else:
            body.append(line)
    reader = _Reader("\n".join(expand(line) for line in body))
    module = reader.operation({}, None)
    if module.name != "builtin.module":
        raise ProgramError(f"a kernel's text is a module, not {module.name!r}")
    return Kernel(module, kept)


class _Reader:
    """A position in a module's text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._space()

    def _space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        self._space()
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            line = self.text.count("\n", 0, self.at) + 1
            found = self.text[self.at:self.at + 60]
            raise ProgramError(f"line {line} of the kernel's generic form: {token!r} expected before {found!r}")

    def _match(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self.text, self.at)
        if not found:
            self._expect(what)
            raise AssertionError
        self.at = found.end()
        self._space()
        return found[0]

    def _until(self, stops: str) -> str:
        end = scan(self.text, self.at, stops)
        found = self.text[self.at:end].strip()
        self.at = end
        self._space()
        return found

    def _inside(self, opening: str, closing: str) -> str:
        """What stands between brackets; after the closing one."""
        self._expect(opening)
        found = self._until(closing[0])
        self._expect(closing)
        return found

    def _location(self) -> str:
        if not self.text.startswith("loc(", self.at):
            return ""
        self.at += 3
        return f"loc({self._inside('(', ')')})"

    def operation(self, scope: dict[str, Value], parent: Block | None) -> Operation:
        names: list[tuple[str, int]] = []
        if self.text.startswith("%", self.at):
            while True:
                name = self._match(_VALUE, "%")
                count = int(self._match(re.compile(r"\d+"), "a count")) if self._take(":") else 1
                names.append((name, count))
                if not self._take(","):
                    break
            self._expect("=")
        name = self._match(_NAME, '"').strip('"')
        operands = []
        for use in split(self._inside("(", ")")):
            if use not in scope:
                raise ProgramError(f"{name}: operand {use} is not defined before it")
            operands.append(scope[use])
        op = Operation(name, operands, parent=parent)
        if self._take("["):
            op.successors = split(self._until("]"))
            self._expect("]")
        if self.text.startswith("<{", self.at):
            self.at += 1
            op.properties = entries(self._inside("{", "}"))
            self._expect(">")
        if self._take("("):
            while True:
                op.regions.append(self._region(dict(scope), op))
                if not self._take(","):
                    break
            self._expect(")")
        if self.text.startswith("{", self.at):
            op.attributes = entries(self._inside("{", "}"))
        self._expect(":")
        self._inside("(", ")")
        self._expect("->")
        if self.text.startswith("(", self.at):
            types = split(self._inside("(", ")"))
        else:
            types = [self._type()]
        op.location = self._location()
        op.results = [Value(read_type(t), op, i) for i, t in enumerate(types)]
        start = 0
        for label, count in names:
            for i in range(count):
                scope[f"{label}#{i}"] = op.results[start + i]
            if count == 1:
                scope[label] = op.results[start]
            start += count
        return op

    def _type(self) -> str:
        """A type that stands alone: up to the end of its brackets."""
        start = self.at
        end = re.compile(r"[^\s<(,)}]*").match(self.text, start)
        assert end is not None
        self.at = end.end()
        if self.text.startswith("<", self.at):
            self.at = scan(self.text, self.at + 1, ">") + 1
        found = self.text[start:self.at]
        self._space()
        return found

    def _region(self, scope: dict[str, Value], op: Operation) -> Region:
        region = Region(op)
        self._expect("{")
        labels: dict[str, Block] = {}
        block: Block | None = None
        while not self._take("}"):
            if self.text.startswith("^", self.at):
                label = self._match(re.compile(r"\^[\w$.-]+"), "^")
                block = Block(region)
                labels[label] = block
                if self._take("("):
                    while not self._take(")"):
                        name = self._match(_VALUE, "%")
                        self._expect(":")
                        type_ = read_type(self._type())
                        scope[name] = block.add_argument(type_, self._location())
                        self._take(",")
                self._expect(":")
                region.blocks.append(block)
                continue
            if block is None:
                block = Block(region)
                region.blocks.append(block)
            block.operations.append(self.operation(scope, block))
        if len(region.blocks) > 1:
            numbers = {label: f"^{region.blocks.index(b)}" for label, b in labels.items()}
            for block in region.blocks:
                for inner in block.operations:
                    inner.successors = [numbers.get(s, s) for s in inner.successors]
        return region


def write_generic(kernel: Kernel) -> str:
    """The module's text in generic form, layouts written out where they stand."""
    lines = [f"{name} = {text}" for name, text in kernel.aliases.items()]
    _Writer(lines.append).operation(kernel.module, "")
    return "\n".join([*lines, ""])


class _Writer:
    def __init__(self, put: Callable[[str], None]) -> None:
        self.put = put
        self.names: dict[Value, str] = {}

    def _label(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:
            raise ProgramError(f"a value of type {value.type} is used where it is not defined")
        return name

    def operation(self, op: Operation, indent: str) -> None:
        head = indent
        number = len(self.names)
        if op.results:
            label = f"%v{number}"
            many = len(op.results) > 1
            head += f"{label}:{len(op.results)} = " if many else f"{label} = "
        operands = ", ".join(self._label(v) for v in op.operands)
        head += f'"{op.name}"({operands})'
        if op.successors:
            head += f"[{', '.join(f'^bb{s[1:]}' for s in op.successors)}]"
        if op.properties:
            head += f" <{{{_entries(op.properties)}}}>"
        tail = f" {{{_entries(op.attributes)}}}" if op.attributes else ""
        results = ", ".join(str(v.type) for v in op.results)
        results = results if len(op.results) == 1 else f"({results})"
        tail += f" : ({', '.join(str(v.type) for v in op.operands)}) -> {results}"
        tail += f" {op.location}" if op.location else ""
        if op.regions:
            for i, region in enumerate(op.regions):
                self.put(head + " ({" if i == 0 else indent + "}, {")
                self._region(region, indent)
            self.put(f"{indent}}}){tail}")
        else:
            self.put(head + tail)
        for i, value in enumerate(op.results):
            self.names[value] = f"{label}#{i}" if many else label

    def _region(self, region: Region, indent: str) -> None:
        for number, block in enumerate(region.blocks):
            for argument in block.arguments:
                self.names[argument] = f"%v{len(self.names)}"
            if block.arguments or len(region.blocks) > 1 or not block.operations:
                arguments = ", ".join(
                    f"{self.names[a]}: {a.type}{' ' + a.location if a.location else ''}" for a in block.arguments)
                self.put(f"{indent}^bb{number}{f'({arguments})' if arguments else ''}:")
            for op in block.operations:
                self.operation(op, indent + "  ")


def _entries(attributes: dict[str, str]) -> str:
    return ", ".join(
        f'"{name}"' + ("" if value == "unit" else f" = {value}") for name, value in attributes.items())
