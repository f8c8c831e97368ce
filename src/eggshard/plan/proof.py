"""The record of a proof: what was shown of a plan, how surely, and what was not looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eggshard.tables import Shown

#: How many times less likely every run makes it that an element which a comparison decides is wrong.
MISSED = 1.5


@dataclass(frozen=True)
class Difference:
    """Where a plan's output is not its program's: the first such element, and how many there are.

    At reduced sizes the index is one of the reduced output. ``index`` is empty for what is no element: devices that
    disagree, for instance; ``why`` says it then.
    """

    output: int
    index: tuple[int, ...] = ()
    elements: int = 0
    of: int = 0
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return self.why
        return f"output {self.output} at index {list(self.index)}; {self.elements} of its {self.of} elements differ"


@dataclass(frozen=True, repr=False)
class Proof(Shown):
    """What evaluating a plan and its program over prime fields has shown.

    equal: True or False; None where nothing was shown, and ``refused`` says why. runs: evaluations with other primes,
    elements and functions. degree: no element is a quotient of polynomials of a higher degree in independent random
    elements. undecided: elements of the outputs, out of ``elements``, that the program itself leaves unknown in every
    run. choices: what bits decide: ops that compare floats, where these are in an order and no elements of the field,
    and inputs of few values, as integers are; choice_runs: the runs made of what these decide. sizes: elements of all
    values of the program as it ran, of ``whole`` at full size. lemmas: values in between at which both were cut, each
    shown to be equal for any values of those before. late: refused because of the time that it would take. seconds: how
    long it took. subject: what was compared. exponents: exponentials were functions that turn sums into products, and
    no random ones.
    """

    equal: bool | None
    runs: int = 0
    degree: float = 0.0
    undecided: int = 0
    elements: int = 0
    choices: int = 0
    choice_runs: int = 0
    refused: str = ""
    difference: Difference | None = None
    sizes: int = 0
    whole: int = 0
    seconds: float = 0.0
    subject: str = "plan and program"
    exponents: bool = False
    lemmas: int = 0
    late: bool = False

    @property
    def bound(self) -> float:
        """The chance at most that one wrong element of a plan that differs was equal in every run, if no bit decides
        it (`choices`): (degree / p)^runs, by Schwartz and Zippel, with random functions taken for independent values.

        Added to the degree are the integers at which some of these are no random ones.
        """
        return chance_of(self.degree, self.exponents) ** self.runs if self.runs else 1.0

    @property
    def choice_bound(self) -> float:
        """About how likely a wrong element was equal in every run that one comparison of two numbers decides.

        What the largest of n is decided by one of them shows in two of n runs.
        """
        return MISSED**-self.choice_runs

    def __bool__(self) -> bool:
        return self.equal is True

    def __str__(self) -> str:
        if self.equal is None:
            return f"nothing was shown: {self.refused}"
        if not self.equal:
            return f"NOT EQUAL: {self.subject} compute different things: {self.difference}"
        lines = [
            f"equal: {self.subject} agree in all {self.elements - self.undecided} elements of the outputs, in "
            f"{self.runs} runs over prime fields ({self.seconds:.2g} s)",
            f"a wrong element would have agreed with a chance of at most {_power(self.bound)}"
            + (f"; where one comparison or integer decides it (there are {self.choices}), of about "
               f"{_power(self.choice_bound)}" if self.choices else ""),
        ]
        if self.exponents:
            lines.append("where exp(x + y) is exp(x) exp(y); with exponentials as random functions they differ")
        if self.lemmas:
            lines.append(f"step by step: {self.lemmas} values in between are equal, too, whatever those before are")
        if self.sizes != self.whole:
            lines.append(f"run at reduced sizes, {self.sizes} elements in place of {self.whole}, along dimensions that "
                         "pass through unchanged: that shows it for the full sizes")
        if self.undecided:
            lines.append(f"not decided: {self.undecided} elements, which are not numbers in the program either")
        lines.append("not covered: rounding, precision, overflow, signed zeros, and what lowering and compiling do")
        return "\n".join(lines)


def chance_of(degree: float, exponents: bool = False) -> float:
    """The chance at most that one wrong element of this degree is equal in a run."""
    chance = (degree + 1) / _LEAST_EXPONENTS if exponents else (degree + 2 * NEAR) / _LEAST_PRIME
    return min(1.0, chance)


#: Integers below this from 0 are themselves to rounding, signs and the like.
NEAR = 16
#: Below every prime of `eggshard.prove`, and below those that exponents are taken modulo.
_LEAST_PRIME, _LEAST_EXPONENTS = 67102438.0, 5230.0


def _power(chance: float) -> str:
    return "1" if chance >= 1 else f"2^{math.ceil(math.log2(chance))}" if chance else "0"
