"""The host's side: functions that ask for workspace, and the calls by which they reach whoever allocates it.

Everything that runs another function is one kind of node, `Call`: plain and asynchronous calls, loops and branches.
Arguments and results are bound by name; nothing is aligned by its position. `forwarding.forward` puts the workspace in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from eggshard.engines.workspace.layout import Layout, Symbols
from eggshard.engines.workspace.requests import GRANULE, Request
from eggshard.engines.workspace.sizes import Size, SizeLike
from eggshard.errors import WorkspaceError

FORMAT = 1
#: Slots of a channel whose author states none; stated from then on, so that both ends see the same number.
DEFAULT_SLOTS = 2
CALL, SUBMIT, LOOP, BRANCH = "call", "submit", "loop", "branch"
CALL_KINDS = (CALL, SUBMIT, LOOP, BRANCH)


@dataclass(frozen=True)
class Channel:
    """Tiles passed through slots of the workspace, in turn; in two rings if they are passed ``back`` too.

    there, back: bytes of a tile each way (back None: one way). slots: of each ring. local_slots: tiles that a receiver
    keeps in memory of its own.
    """

    name: str
    there: Size
    back: Size | None = None
    slots: Size = Size.of(DEFAULT_SLOTS)
    local_slots: Size = Size.of(DEFAULT_SLOTS)

    @staticmethod
    def make(name: str, there: SizeLike, back: SizeLike | None = None, slots: SizeLike | None = None,
             local_slots: SizeLike = DEFAULT_SLOTS) -> Channel:
        """A channel from plain numbers and texts."""
        return Channel(name, Size.of(there), None if back is None else Size.of(back),
                       Size.of(DEFAULT_SLOTS if slots is None else slots), Size.of(local_slots))

    def requests(self) -> tuple[Request, ...]:
        """What it takes of the workspace: one buffer of one or two rings, or one for each way if tiles differ."""
        if self.back is None or self.back == self.there:
            rings = 1 if self.back is None else 2
            return (Request.make(self.name, self.there, slots=self.slots, rings=rings, what="channel"),)
        return tuple(
            Request.make(name, bytes, slots=self.slots, what="channel")
            for name, bytes in ((self.name, self.there), (f"{self.name}.back", self.back))
        )

    def ring(self, back: bool) -> tuple[str, int]:
        """The request and the ring in it that tiles take one way or ``back``."""
        if back and self.back is None:
            raise WorkspaceError(f"channel {self.name!r} passes nothing back")
        return (f"{self.name}.back", 0) if back and self.back != self.there else (self.name, int(back))

    def reserve(self, back: bool, granule: int = GRANULE) -> Size:
        """Bytes that the receiver keeps on its own side: of its own slots, of tiles of its own direction."""
        self.ring(back)
        bytes = self.back if back and self.back is not None else self.there
        return self.local_slots * bytes.aligned(granule)


@dataclass(frozen=True)
class Define:
    """A scalar of the host: a size of scalars before it, or (``size`` None) a number that only running tells."""

    name: str
    size: Size | None = None


class Use(NamedTuple):
    """Which buffer of the caller, and which request in it, a call hands down."""

    buffer: str
    request: str


@dataclass(frozen=True)
class Call:
    """Runs a function, now or asynchronously, again and again, or one of several.

    What a function submits runs at the same time as the rest of it, and has finished when the function returns.

    arguments: the callee's parameters, as sizes of scalars or names of arrays. results: its results, each with the
    name that it gets here; a tuple's name instead binds all of them, as ``name.result``. blocks, lanes: of this launch;
    those of the callee if None. variable: the parameter that counts a loop's iterations. overlap: iterations that run
    at the same time. taken: the one branch that is compiled, if that is known.
    """

    callees: tuple[str, ...]
    arguments: Mapping[str, Size]
    results: Mapping[str, str] | str
    kind: str = CALL
    blocks: Size | None = None
    lanes: Size | None = None
    variable: str = ""
    overlap: Size = Size.of(1)
    taken: int | None = None
    workspace: Use | None = None

    def __post_init__(self) -> None:
        if self.kind not in CALL_KINDS:
            raise WorkspaceError(f"{self.kind!r} is no kind of call; there are {', '.join(CALL_KINDS)}")
        if not self.callees or (self.kind != BRANCH and len(self.callees) != 1):
            raise WorkspaceError(f"a {self.kind} of {len(self.callees)} functions")
        if self.taken is not None and not 0 <= self.taken < len(self.callees):
            raise WorkspaceError(f"branch {self.taken} is taken, of {len(self.callees)}")

    @staticmethod
    def make(callees: str | tuple[str, ...], arguments: Mapping[str, SizeLike] | None = None,
             results: Mapping[str, str] | str | None = None, kind: str = CALL, blocks: SizeLike | None = None,
             lanes: SizeLike | None = None, overlap: SizeLike = 1, **options: Any) -> Call:
        """A call from plain numbers and texts."""
        return Call(
            (callees,) if isinstance(callees, str) else tuple(callees),
            {k: Size.of(v) for k, v in (arguments or {}).items()}, results or {}, kind,
            None if blocks is None else Size.of(blocks), None if lanes is None else Size.of(lanes),
            overlap=Size.of(overlap), **options,
        )

    @property
    def live(self) -> tuple[str, ...]:
        """The functions that it can run: not those of branches that are never compiled."""
        return self.callees if self.taken is None else (self.callees[self.taken],)


@dataclass(frozen=True)
class Allocate:
    """One buffer of the size that its layout computes, made here."""

    name: str
    layout: Layout


Node = Define | Call | Allocate


@dataclass(frozen=True)
class Function:
    """Parameters, nodes in order, and results by name.

    results: each with the local name that is returned; a tuple's name under "*" returns all that it binds. requests:
    of each lane of each block; None for a function that is only declared and does not say. host: it may allocate.
    workspace: the layout of the buffer that its callers hand it, if they do, as its last parameter ``WORKSPACE``.
    """

    name: str
    parameters: tuple[str, ...] = ()
    body: tuple[Node, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[Request, ...] | None = ()
    channels: tuple[Channel, ...] = ()
    host: bool = False
    blocks: Size = Size.of(1)
    lanes: Size = Size.of(1)
    workspace: Layout | None = None

    @property
    def calls(self) -> Iterator[tuple[int, Call]]:
        """Its calls of every kind, each with its position in the body."""
        return ((i, node) for i, node in enumerate(self.body) if isinstance(node, Call))

    @property
    def own(self) -> tuple[Request, ...]:
        """What it asks for itself. WorkspaceError for a function that is declared without saying."""
        if self.requests is None:
            raise WorkspaceError(
                f"{self.name!r} is only declared, and does not say what workspace it needs; give its requests, () for "
                "none"
            )
        channels: dict[str, Channel] = {}
        for channel in self.channels:
            if channels.setdefault(channel.name, channel) != channel:
                raise WorkspaceError(
                    f"the ends of channel {channel.name!r} in {self.name!r} disagree: {channels[channel.name]} and "
                    f"{channel}"
                )
        return (*self.requests, *(r for c in channels.values() for r in c.requests()))

    @property
    def signature(self) -> tuple[str, ...]:
        """Its parameters, the workspace that it is handed last."""
        return self.parameters if self.workspace is None else (*self.parameters, WORKSPACE)


def launch_shape(call: Call, callee: Function) -> tuple[Size, Size]:
    """Blocks and lanes that run: the launch's own where it states them, the callee's otherwise. Nobody else decides."""
    return (callee.blocks if call.blocks is None else call.blocks, callee.lanes if call.lanes is None else call.lanes)


@dataclass(frozen=True)
class Module:
    """Functions by name, and which of them the host starts with.

    WorkspaceError where names are not bound one to one, or functions call themselves.
    """

    functions: Mapping[str, Function]
    entry: str

    def __post_init__(self) -> None:
        for name, function in self.functions.items():
            if name != function.name:
                raise WorkspaceError(f"function {function.name!r} stands under the name {name!r}")
        self.order(self.functions, compiled=False)
        for function in self.functions.values():
            self._check(function)

    @staticmethod
    def of(entry: str, *functions: Function) -> Module:
        """A module of these functions."""
        return Module({f.name: f for f in functions}, entry)

    def function(self, name: str) -> Function:
        """The function of that name; WorkspaceError if there is none."""
        if name not in self.functions:
            raise WorkspaceError(f"no function {name!r} is defined or declared")
        return self.functions[name]

    def order(self, roots: Iterable[str] | None = None, compiled: bool = True) -> list[str]:
        """What the entry (or others) can reach, callees first; through branches that are compiled, or through all.

        WorkspaceError for functions that call themselves in the end.
        """
        done: dict[str, None] = {}
        open_: list[str] = []

        def visit(name: str) -> None:
            if name in done:
                return
            if name in open_:
                cycle = " -> ".join([*open_[open_.index(name):], name])
                raise WorkspaceError(f"{cycle} is recursive, and needs workspace without bound; make it a loop")
            open_.append(name)
            for _, call in self.function(name).calls:
                for callee in call.live if compiled else call.callees:
                    visit(callee)
            done[open_.pop()] = None

        for root in (self.entry,) if roots is None else roots:
            visit(root)
        return list(done)

    def results_of(self, name: str) -> dict[str, str]:
        """The function's results and the local names returned for them, tuples taken apart."""
        function = self.function(name)
        out: dict[str, str] = {}
        for result, local in function.results.items():
            for key, value in (self._of_tuple(function, local) if result == "*" else {result: local}).items():
                if key in out:
                    raise WorkspaceError(f"{name!r} returns two results of the name {key!r}")
                out[key] = value
        return out

    def origin(self, name: str, result: str) -> tuple[str, str]:
        """The function that makes a result, and what it calls it there: followed through the wrappers by names."""
        function, local = self.function(name), self.results_of(name)[result]
        for _, call in function.calls:
            for inner, here in self.bound(call).items():
                if here == local:
                    return self.origin(call.callees[0], inner)
        return name, local

    def bound(self, call: Call) -> dict[str, str]:
        """The callee's results and the local names that they get."""
        if isinstance(call.results, str):
            return {r: f"{call.results}.{r}" for r in self.results_of(call.callees[0])}
        return dict(call.results)

    def _of_tuple(self, function: Function, name: str) -> dict[str, str]:
        for _, call in function.calls:
            if call.results == name:
                return self.bound(call)
        raise WorkspaceError(f"{function.name!r} returns the tuple {name!r}, which no call makes")

    def _check(self, function: Function) -> None:
        """Names are defined once, and bound one to one: arguments to parameters, results to results."""
        where = repr(function.name)
        names = list(function.parameters)
        for node in function.body:
            if isinstance(node, Define):
                names.append(node.name)
            if isinstance(node, Call):
                names += self.bound(node).values()
                for callee in node.callees:
                    self._check_call(where, node, self.function(callee))
        for name in names:
            if names.count(name) > 1:
                raise WorkspaceError(f"{where} defines {name!r} twice")
            if name == WORKSPACE:
                raise WorkspaceError(f"{where} calls something of its own {WORKSPACE!r}; the name is taken")
        for result, local in self.results_of(function.name).items():
            if local not in names:
                raise WorkspaceError(f"{where} returns {local!r} as {result!r}, which it does not define")

    def _check_call(self, where: str, call: Call, callee: Function) -> None:
        expected = [p for p in callee.parameters if p != call.variable]
        if sorted(call.arguments) != sorted(expected):
            raise WorkspaceError(f"{where} calls {callee.name!r} with {sorted(call.arguments)}; its parameters are "
                                 f"{expected}")
        made = self.results_of(callee.name)
        if set(self.bound(call)) != set(made):
            raise WorkspaceError(f"{where} binds the results {sorted(self.bound(call))} of {callee.name!r}, which "
                                 f"returns {sorted(made)}")

    def to_json(self) -> str:
        """JSON text that `from_json` reads."""
        return json.dumps({"eggshard launches": FORMAT, "entry": self.entry,
                           "functions": [_encode(f) for f in self.functions.values()]})

    @staticmethod
    def from_json(text: str) -> Module:
        """A module from its JSON text; sizes are read back by name, so that no second symbol is made."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise WorkspaceError(f"not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("eggshard launches") != FORMAT:
            raise WorkspaceError(f"not launches of format {FORMAT}; write them with Module.to_json")
        try:
            return Module.of(data["entry"], *(_decode(f) for f in data["functions"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise WorkspaceError(f"damaged JSON of launches: {error!r}; write it with Module.to_json") from None


#: The name of the parameter by which functions are handed their workspace.
WORKSPACE = "workspace"
_CLASSES = {c.__name__: c for c in (Channel, Define, Use, Call, Allocate, Function)}


def _encode(value: Any) -> Any:
    if isinstance(value, Size):
        return {"@": "Size", "size": value.to_json()}
    if isinstance(value, Layout):
        return {"@": "Layout", "layout": value.to_json()}
    if isinstance(value, Request):
        return {"@": "Request", "request": value.to_json()}
    if isinstance(value, Use):
        return {"@": "Use", "buffer": value.buffer, "request": value.request}
    if is_dataclass(value):
        return {"@": type(value).__name__, **{f.name: _encode(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, Mapping):
        return {"@": "dict", "items": {k: _encode(v) for k, v in value.items()}}
    return [_encode(v) for v in value] if isinstance(value, tuple) else value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    match value["@"]:
        case "Size":
            return Size.of(value["size"])
        case "Layout":
            return Layout.from_json(value["layout"])
        case "Request":
            return Request.from_json(value["request"])
        case "dict":
            return {k: _decode(v) for k, v in value["items"].items()}
        case tag:
            return _CLASSES[tag](**{k: _decode(v) for k, v in value.items() if k != "@"})


class Extent(NamedTuple):
    """``size`` elements in blocks of ``tile``: each block has room for a whole tile, and the last may fill less."""

    size: Size
    tile: int

    @property
    def blocks(self) -> Size:
        """How many blocks there are."""
        return self.size.divided(self.tile)

    def valid(self, block: int, symbols: Symbols | None = None) -> int:
        """Elements of a block that are inside: what users see. The allocated tile stays whole."""
        return min(self.tile, max(0, self.size.value(symbols) - block * self.tile))
