"""Sizes in bytes, and counts, that may be known only at launch: sums, products, maxima and rounded quotients.

A symbol is its name: two expressions that read the same are equal, and reading one back from its text makes no
second symbol. Symbols stand for non-negative integers; every value in an evaluation fits a signed integer of 64 bits.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import math
import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, SupportsIndex, TypeAlias

from eggshard.errors import WorkspaceError

#: What a signed integer of 64 bits holds at most.
BITS = 64
#: Names that begin otherwise are those of parts of long expressions.
_NAME = re.compile(r"[A-Za-z][A-Za-z_0-9]*\Z")
_PART = re.compile(r"_[0-9]+\Z")
_FUNCTIONS = ("max", "ceil")
#: Characters of texts that are no longer spelled out wherever they stand.
_LONG = 200


@dataclass(frozen=True, eq=False)
class Atom:
    """A factor that is no number: a symbol, the maximum of sizes, or a quotient rounded up.

    key: its text, or a digest in place of a long one; atoms are equal, and ordered, by their keys.
    """

    kind: str
    name: str = ""
    sizes: tuple[Size, ...] = ()
    divisor: int = 1
    key: str = field(init=False)
    factor: int = field(init=False)

    def __post_init__(self) -> None:
        known = math.gcd(*(s.factor for s in self.sizes)) if self.kind == "max" else 1
        object.__setattr__(self, "factor", known)
        object.__setattr__(self, "key", _shortened(self.spelled([s.key for s in self.sizes])))

    def spelled(self, sizes: Sequence[str]) -> str:
        """Its text, from the texts of its sizes."""
        if self.kind == "symbol":
            return self.name
        if self.kind == "max":
            return f"max({', '.join(sizes)})"
        inner = sizes[0] if len(self.sizes[0].terms) == 1 else f"({sizes[0]})"
        return f"ceil({inner} / {self.divisor})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


#: Coefficients, each with the atoms that it multiplies.
Terms: TypeAlias = tuple[tuple[int, tuple[Atom, ...]], ...]


@dataclass(frozen=True, eq=False)
class Size:
    """A sum of products in canonical order: equal sizes of the same terms are equal objects.

    What stands in several places of a large expression is kept, evaluated and printed once.

    >>> n = symbol("n")
    >>> print((4 * n + 3 + n).aligned(64))
    64*ceil((3 + 5*n) / 64)
    """

    terms: Terms
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _shortened(self._spelled({})))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @staticmethod
    def of(value: SizeLike) -> Size:
        """A size from an integer, the text of a size, or a size. WorkspaceError for anything else."""
        if isinstance(value, Size):
            return value
        if isinstance(value, str):
            return parse(value)
        number = integer(value, "a size")
        return Size(((number, ()),) if number else ())

    @cached_property
    def constant(self) -> int | None:
        """The number that it is whatever the symbols are; None for an expression."""
        if not self.terms:
            return 0
        coefficient, atoms = self.terms[0]
        return coefficient if len(self.terms) == 1 and not atoms else None

    @cached_property
    def factor(self) -> int:
        """A number that divides it whatever the symbols are; 0 divides nothing but zero."""
        return math.gcd(*(coefficient * math.prod(a.factor for a in atoms) for coefficient, atoms in self.terms))

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """All atoms in it, each once, those within others before them."""
        done: dict[Atom, None] = {}
        open_ = [atom for _, atoms in reversed(self.terms) for atom in reversed(atoms)]
        while open_:
            inner = [a for s in open_[-1].sizes for _, atoms in s.terms for a in atoms if a not in done]
            if inner:
                open_ += reversed(inner)
            else:
                done[open_.pop()] = None
        return tuple(done)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names that it depends on."""
        return frozenset(atom.name for atom in self.atoms if atom.kind == "symbol")

    def value(self, symbols: Mapping[str, int] | None = None, bits: int = BITS) -> int:
        """The number at these symbols.

        WorkspaceError where a symbol has no value or a negative one, or a number on the way exceeds ``bits`` (signed).
        """
        if self.constant is not None:
            return _checked(self.constant, bits, self)
        known: dict[Atom, int] = {}
        for atom in self.atoms:
            if atom.kind == "symbol":
                known[atom] = _checked(_given(atom.name, symbols or {}), bits, atom.name)
            else:
                values = [s._sum(known, bits) for s in atom.sizes]
                known[atom] = max(values) if atom.kind == "max" else -(-values[0] // atom.divisor)
        return self._sum(known, bits)

    def _sum(self, known: Mapping[Atom, int], bits: int) -> int:
        """The number at these numbers of its atoms."""
        total = 0
        for coefficient, atoms in self.terms:
            product = coefficient
            # A factor of zero ends a product that would overflow without it.
            for factor in sorted(known[atom] for atom in atoms):
                product = _checked(product * factor, bits, self)
            total = _checked(total + _checked(product, bits, self), bits, self)
        return total

    def count(self, symbols: Mapping[str, int] | None = None, what: str = "a count") -> int:
        """Its value as the number of devices, blocks, lanes, rings or slots; WorkspaceError unless it is positive."""
        number = self.value(symbols)
        if number < 1:
            raise WorkspaceError(f"{what} is {self} = {number}; launch at least one")
        return number

    def substituted(self, values: Mapping[str, SizeLike]) -> Size:
        """The size with sizes in place of symbols."""
        known: dict[Atom, Size] = {}

        def combined(size: Size) -> Size:
            total = Size(())
            for coefficient, atoms in size.terms:
                product = Size.of(coefficient)
                for atom in atoms:
                    product = product * known[atom]
                total = total + product
            return total

        for atom in self.atoms:
            if atom.kind == "symbol":
                known[atom] = Size.of(values[atom.name]) if atom.name in values else Size(((1, (atom,)),))
            elif atom.kind == "max":
                known[atom] = maximum(*map(combined, atom.sizes))
            else:
                known[atom] = combined(atom.sizes[0]).divided(atom.divisor)
        return combined(self)

    def __add__(self, other: SizeLike) -> Size:
        out: Counter[tuple[Atom, ...]] = Counter()
        for coefficient, atoms in (*self.terms, *Size.of(other).terms):
            out[atoms] += coefficient
        return _canonical(out)

    def __mul__(self, other: SizeLike) -> Size:
        out: Counter[tuple[Atom, ...]] = Counter()
        for left, some in self.terms:
            for right, more in Size.of(other).terms:
                out[tuple(sorted((*some, *more), key=_key))] += left * right
        return _canonical(out)

    __radd__ = __add__
    __rmul__ = __mul__

    def divided(self, divisor: int) -> Size:
        """The quotient by a positive integer, rounded up: elements that hold so many bytes, blocks of so many rows."""
        if integer(divisor, "a divisor") < 1:
            raise WorkspaceError(f"{self} cannot be divided by {divisor}; a divisor is positive")
        whole, rest = Counter[tuple[Atom, ...]](), Counter[tuple[Atom, ...]]()
        for coefficient, atoms in self.terms:
            quotient, remainder = divmod(coefficient, divisor)
            whole[atoms] += quotient
            rest[atoms] += remainder
        left = _canonical(rest)
        if left.constant is not None:
            return _canonical(whole) + -(-left.constant // divisor)
        return _canonical(whole) + Size(((1, (Atom("ceil", sizes=(left,), divisor=divisor),)),))

    def aligned(self, alignment: int) -> Size:
        """Rounded up to a multiple of a positive integer."""
        if integer(alignment, "an alignment") and self.factor % alignment == 0:
            return self
        return self.divided(alignment) * alignment

    def __str__(self) -> str:
        """Its text, which `parse` reads; what stands in a long one is given names of its own."""
        if "#" not in self.key:
            return self.key
        names: dict[Atom, str] = {}
        bindings = []
        for atom in self.atoms:
            if atom.kind != "symbol":
                text = atom.spelled([s._spelled(names) for s in atom.sizes])
                names[atom] = f"_{len(names) + 1}"
                bindings.append(f"{names[atom]} = {text}")
        return f"{self._spelled(names)} where {'; '.join(bindings)}"

    def _spelled(self, names: Mapping[Atom, str]) -> str:
        def term(coefficient: int, atoms: tuple[Atom, ...]) -> str:
            factors = [names.get(atom, atom.key) for atom in atoms]
            return "*".join(([str(coefficient)] if coefficient != 1 or not atoms else []) + factors)

        return " + ".join(term(*t) for t in self.terms) or "0"

    def to_json(self) -> int | str:
        """A number, or its text."""
        return str(self) if self.constant is None else self.constant


SizeLike: TypeAlias = Size | str | SupportsIndex


def symbol(name: str) -> Size:
    """The size of that name; WorkspaceError unless it is an identifier."""
    if not isinstance(name, str) or not _NAME.match(name) or name in _FUNCTIONS or keyword.iskeyword(name):
        raise WorkspaceError(f"{name!r} does not name a size; a name is an identifier other than max and ceil")
    return Size(((1, (Atom("symbol", name),)),))


def maximum(*sizes: SizeLike) -> Size:
    """The largest of sizes (0 of none); those that others exceed whatever the symbols are fall away."""
    flat: list[Size] = []
    for size in map(Size.of, sizes):
        (coefficient, atoms), *more = size.terms or ((0, ()),)
        inner = not more and coefficient == 1 and len(atoms) == 1 and atoms[0].kind == "max"
        flat += atoms[0].sizes if inner else (size,)
    flat = list(dict.fromkeys(flat))
    kept = [s for s in flat if not any(s != other and _exceeds(other, s) for other in flat)]
    if len(kept) < 2:
        return kept[0] if kept else Size(())
    return Size(((1, (Atom("max", sizes=tuple(sorted(kept, key=_key))),)),))


def parse(text: str, aliases: Mapping[str, SizeLike] | None = None) -> Size:
    """The size that a text of `Size.__str__` spells; names that ``aliases`` holds are folded onto their sizes.

    WorkspaceError for any other text.
    """
    folded = dict(aliases or {})

    def read(node: ast.AST) -> Size:
        match node:
            case ast.Expression(body):
                return read(body)
            case ast.Constant(value) if type(value) is int:
                return Size.of(value)
            case ast.Name(name):
                return Size.of(folded[name]) if name in folded else symbol(name)
            case ast.BinOp(left, ast.Add(), right):
                return read(left) + read(right)
            case ast.BinOp(left, ast.Mult(), right):
                return read(left) * read(right)
            case ast.Call(ast.Name("max"), args, []):
                return maximum(*map(read, args))
            case ast.Call(ast.Name("ceil"), [ast.BinOp(left, ast.Div(), ast.Constant(int(divisor)))], []):
                return read(left).divided(divisor)
        raise WorkspaceError(
            f"{text!r} is not a size; sizes are integers and names joined by +, *, max(a, b) and ceil(a / number)"
        )

    try:
        whole, _, parts = text.partition(" where ")
        for part in parts.split("; ") if parts else ():
            name, _, meaning = part.partition(" = ")
            if not _PART.match(name) or name in folded:
                raise WorkspaceError(f"{name!r} names no part of a size once")
            folded[name] = read(ast.parse(meaning.strip(), mode="eval"))
        return read(ast.parse(whole.strip(), mode="eval"))
    except (SyntaxError, ValueError, RecursionError):
        raise WorkspaceError(f"{text!r} is not a size") from None


def integer(value: Any, what: str) -> int:
    """A non-negative integer; WorkspaceError for any other value."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise WorkspaceError(f"{what} is {value!r}; sizes and counts are non-negative integers")
    return number


def aligned_up(number: int, alignment: int) -> int:
    """The number rounded up to a multiple. Of bytes: to be checked with `fitting`."""
    return -(-number // alignment) * alignment


def fitting(number: int, what: str) -> int:
    """The number; WorkspaceError unless it fits a signed integer of 64 bits."""
    return _checked(number, BITS, what)


def _key(part: Atom | Size) -> str:
    return part.key


def _shortened(text: str) -> str:
    return text if len(text) <= _LONG else f"#{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _given(name: str, symbols: Mapping[str, int]) -> int:
    if name not in symbols:
        known = ", ".join(sorted(symbols)) or "none"
        raise WorkspaceError(f"the size {name!r} has no value yet (known: {known}); give it at the launch")
    return integer(symbols[name], f"the size {name!r}")


def _canonical(terms: Mapping[tuple[Atom, ...], int]) -> Size:
    kept = [(coefficient, atoms) for atoms, coefficient in terms.items() if coefficient]
    return Size(tuple(sorted(kept, key=lambda t: (len(t[1]), [a.key for a in t[1]]))))


def _exceeds(large: Size, small: Size) -> bool:
    """Whether every term of the small one is in the large one at least as often."""
    there = {atoms: coefficient for coefficient, atoms in large.terms}
    return all(there.get(atoms, 0) >= coefficient for coefficient, atoms in small.terms)


def _checked(number: int, bits: int, what: Size | str) -> int:
    if number >= 1 << (bits - 1):
        raise WorkspaceError(
            f"{what} comes to {number}, beyond {bits} bits; launch less, or "
            "give it a wider index"
        )
    return number
