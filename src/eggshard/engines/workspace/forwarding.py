"""Workspace put into a host program: who asks, who hands it down, who allocates it and where.

From the callees upwards every function that asks for workspace, or calls one that does, gets one more parameter; every
call hands it a part of the caller's own buffer, one part per call. A host function allocates what its callers could not
size, at the first place where all of its size is known; the entry allocates all the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from eggshard.engines.workspace.launches import (
    BRANCH,
    LOOP,
    SUBMIT,
    WORKSPACE,
    Allocate,
    Call,
    Define,
    Function,
    Module,
    Node,
    Use,
    launch_shape,
)
from eggshard.engines.workspace.layout import Layout, Symbols, lay_out
from eggshard.engines.workspace.requests import GRANULE, Request
from eggshard.engines.workspace.sizes import Size, maximum
from eggshard.errors import WorkspaceError


def forward(module: Module, granule: int = GRANULE) -> Module:
    """The module with workspace allocated and handed down; run again it changes nothing.

    Functions that need none stay as they are, and so do those that the entry never reaches. WorkspaceError for
    recursion, for a function that is declared without its needs, and for a size that no host can know in time.
    """
    bare = stripped(module)
    order = bare.order()
    counted = {
        (callee, call.variable) for name in order for _, call in bare.function(name).calls
        if call.kind == LOOP and call.variable for callee in call.live
    }
    done: dict[str, Function] = {}
    for name in order:
        varying = {variable for callee, variable in counted if callee == name}
        looped = any(name in c.live and c.kind == LOOP for f in order for _, c in bare.function(f).calls)
        done[name] = _Threaded(bare.function(name), done, varying, looped, name == bare.entry, granule).function()
    return Module({name: done.get(name, f) for name, f in bare.functions.items()}, bare.entry)


def stripped(module: Module) -> Module:
    """The module without allocations and workspace parameters."""
    def bare(function: Function) -> Function:
        body = tuple(
            replace(node, workspace=None) if isinstance(node, Call) else node
            for node in function.body if not isinstance(node, Allocate)
        )
        changed = body != function.body or function.workspace is not None
        return replace(function, body=body, workspace=None) if changed else function

    return Module({name: bare(f) for name, f in module.functions.items()}, module.entry)


def needs(module: Module, name: str) -> bool:
    """Whether callers of a forwarded module's function hand it workspace."""
    return module.function(name).workspace is not None


def scalars(call: Call, symbols: Symbols, iteration: int = 0) -> dict[str, int]:
    """The callee's scalars: its arguments at the caller's. Those that are arrays, or unknown, are left out."""
    out = {
        parameter: size.value(symbols) for parameter, size in call.arguments.items() if size.symbols <= set(symbols)
    }
    return {**out, call.variable: iteration} if call.variable else out


def slice_of(
    module: Module, caller: str, call: Call, callee: str, symbols: Symbols,
    block: int = 0, lane: int = 0, iteration: int = 0,
) -> int:
    """Bytes from the start of the buffer that a call uses to the slice of one lane of one block of its callee.

    WorkspaceError for blocks and lanes that this launch does not have.
    """
    if call.workspace is None:
        raise WorkspaceError(f"the call of {callee!r} in {caller!r} hands down no workspace")
    counts = launch_shape(call, module.function(callee))
    blocks, lanes = (size.count(symbols, what) for size, what in zip(counts, ("blocks", "lanes"), strict=True))
    if not 0 <= block < blocks or not 0 <= lane < lanes:
        raise WorkspaceError(f"block {block}, lane {lane} is not in a launch of {blocks} blocks of {lanes} lanes")
    layout = buffer_layout(module.function(caller), call.workspace.buffer)
    place = layout.place(call.workspace.request, symbols)
    inner = module.function(callee).workspace
    if inner is None:
        raise WorkspaceError(f"{callee!r} takes no workspace")
    stride = inner.stride(scalars(call, symbols, iteration))
    number = block * lanes + lane
    if len(call.live) == 1:
        return layout.offset(call.workspace.request, slot=iteration % place.slots, lane=number, symbols=symbols)
    return layout.offset(call.workspace.request, symbols=symbols) + number * stride


def buffer_layout(function: Function, buffer: str) -> Layout:
    """The layout of a function's workspace parameter or of a buffer that it allocates."""
    layouts = {node.name: node.layout for node in function.body if isinstance(node, Allocate)}
    if function.workspace is not None:
        layouts[WORKSPACE] = function.workspace
    if buffer not in layouts:
        raise WorkspaceError(f"{function.name!r} has no workspace {buffer!r}")
    return layouts[buffer]


class _Threaded:
    """One function, its callees being done."""

    def __init__(self, function: Function, done: Mapping[str, Function], varying: set[str], looped: bool,
                 entry: bool, granule: int):
        self.given, self.done, self.granule = function, done, granule
        self.varying, self.looped, self.entry = varying, looped, entry
        self.ready: dict[str, int] = {p: 0 for p in function.parameters}
        self.defined: dict[str, Size] = {}
        for i, node in enumerate(function.body):
            if isinstance(node, Define):
                self.ready[node.name] = i + 1
                if node.size is not None:
                    self.defined[node.name] = node.size.substituted(self.defined)
            elif isinstance(node, Call) and not isinstance(node.results, str):
                self.ready.update(dict.fromkeys(node.results.values(), i + 1))

    def function(self) -> Function:
        given = self.given
        requests = list(given.own)
        sites: dict[int, str] = {}
        for i, call in given.calls:
            site = self.site(i, call)
            if site is not None:
                requests.append(site)
                sites[i] = site.name
        if not requests:
            return given
        handed: list[Request] = []
        here: dict[int, list[Request]] = defaultdict(list)
        for request in requests:
            request = request.substituted(self.defined)
            known = all(s in given.parameters and s not in self.varying for s in request.symbols)
            if known and not self.entry:
                handed.append(request)
            else:
                here[self.place(request)].append(request)
        allocations = {at: Allocate(f"{WORKSPACE}.{k}", lay_out(here[at], granule=self.granule))
                       for k, at in enumerate(sorted(here))}
        buffer = {r.name: WORKSPACE for r in handed}
        buffer |= {r.name: allocations[at].name for at, group in here.items() for r in group}
        body: list[Node] = []
        for i, node in enumerate((*given.body, None)):
            if i in allocations:
                body.append(allocations[i])
            if isinstance(node, Call) and i in sites:
                node = replace(node, workspace=Use(buffer[sites[i]], sites[i]))
            if node is not None:
                body.append(node)
        layout = lay_out(handed, granule=self.granule) if handed else None
        return replace(given, body=tuple(body), workspace=layout)

    def place(self, request: Request) -> int:
        """The first position where a request's size is known; WorkspaceError where that is too late, or never."""
        where = repr(self.given.name)
        for s in sorted(request.symbols):
            if s not in self.ready:
                raise WorkspaceError(f"{request.name!r} in {where} is sized by {s!r}, which {where} does not define")
        if not self.given.host:
            raise WorkspaceError(
                f"{request.name!r} is sized by {', '.join(sorted(request.symbols)) or 'nothing'}, which callers of "
                f"{where} do not know, and it is no host function that could allocate; define the size in the host"
            )
        at = max((self.ready[s] for s in request.symbols), default=0)
        if request.lifetime is not None and at > request.lifetime.first:
            raise WorkspaceError(f"{request.name!r} in {where} is needed before its size is defined")
        if request.persistent and self.looped:
            raise WorkspaceError(f"{request.name!r} persists, but {where} would allocate it in every iteration; its "
                                 "size must be known before the loop")
        return at

    def site(self, i: int, call: Call) -> Request | None:
        """What a call takes of the caller's workspace: a slice for every lane of every block that it launches."""
        layouts = [(f, f.workspace) for f in (self.done[c] for c in call.live) if f.workspace is not None]
        if not layouts:
            return None
        strides, counts = [], []
        for callee, layout in layouts:
            blocks, lanes = launch_shape(call, callee)
            for count, what in ((blocks, "blocks"), (lanes, "lanes")):
                if count.constant is not None:
                    count.count(what=f"the number of {what} of {callee.name!r}")
            strides.append(layout.stride_size.substituted(call.arguments))
            counts.append(blocks * lanes)
        alignment = max(layout.alignment for _, layout in layouts)
        persistent = any(r.persistent for _, layout in layouts for r in layout.requests)
        # Of branches one runs: room for the largest. Otherwise lanes of one request, whose count is checked at launch.
        bytes, copies = strides[0], counts[0]
        if len(layouts) > 1:
            bytes, copies = maximum(*(s * n for s, n in zip(strides, counts, strict=True))), Size.of(1)
        inner = {s for r in layouts[0][1].requests for s in (*r.counts, *r.positive) if s.constant is None}
        positive = sorted({s.substituted(call.arguments) for s in inner} if call.kind != BRANCH else (), key=str)
        overlap = call.overlap if call.kind == LOOP else Size.of(1)
        if persistent and overlap.constant != 1:
            raise WorkspaceError(f"iterations of {call.callees[0]!r} overlap, and would share what persists")
        last = len(self.given.body) if call.kind == SUBMIT else i
        return Request.make(
            f"{i}.{'|'.join(call.live) if call.kind == BRANCH else call.live[0]}", bytes,
            None if persistent else (i, last), alignment=alignment, slots=overlap, lanes=copies,
            site=f"{self.given.name} {i}", what=call.kind, persistent=persistent, positive=positive,
        )
