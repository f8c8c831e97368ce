"""Runs host programs on tagged memory: all blocks and lanes of a launch hold their data at the same time.

A function writes its buffers when their life begins, runs its calls, and finds its own data as long as they live.
"""

from tests.engines.workspace.oracle import TaggedMemory

from eggshard.engines.workspace import forwarding
from eggshard.engines.workspace.launches import BRANCH, LOOP, SUBMIT, WORKSPACE, Allocate, Call, Define, launch_shape

#: Bytes tagged per slot at either end; those between are not looked at.
EDGE = 48


class Launched:
    """``runtime``: numbers that only running tells. ``trips``, ``chosen``: of loops by variable, of branches."""

    def __init__(self, module, symbols, runtime=None, trips=None, chosen=0, slice_of=forwarding.slice_of):
        self.module, self.runtime, self.trips = module, runtime or {}, trips or {}
        self.chosen, self.slice_of = chosen, slice_of
        self.allocated, self.runs, self.launches, self.persisting = [], 0, [], set()
        self.finish([self.function(module.entry, dict(symbols), None, (0, 0))])

    @staticmethod
    def finish(running):
        """All at the same time: each as far as it goes before the next yields again."""
        while running:
            running = [r for r in running if next(r, r) is not r]

    def function(self, name, scalars, base, lane):
        self.runs += 1
        run, function, env = self.runs, self.module.function(name), dict(scalars)
        buffers = {} if base is None else {WORKSPACE: base}
        submitted = []
        length = len(function.body)
        own = {} if function.requests is None else {r.name: r.lifetime or (0, length) for r in function.own}
        waiting = set(own)
        for at in range(length + 1):
            node = function.body[at] if at < length else None
            if isinstance(node, Define):
                env[node.name] = self.runtime[node.name] if node.size is None else node.size.value(env)
            elif isinstance(node, Allocate):
                memory = TaggedMemory(node.layout.stride(env))
                self.allocated.append((name, node.name, len(memory.bytes)))
                buffers[node.name] = (memory, 0)
            self.touch(function, buffers, env, (run, name, lane),
                       {r for r in waiting if own[r][0] <= at and self.held(function, buffers, r)}, waiting, fresh=True)
            if isinstance(node, Call):
                for callee in self.callees(node):
                    running = self.running(function, node, callee, env, buffers)
                    if node.kind == SUBMIT:
                        submitted += [r for r in running if next(r, r) is not r]
                    else:
                        self.finish(running)
                self.bind(node, env)
            yield
            self.touch(function, buffers, env, (run, name, lane),
                       {r for r in own if own[r][1] == at and at < length}, waiting, fresh=False)
        self.finish(submitted)
        assert not waiting, "asked for, and never there"
        self.touch(function, buffers, env, (run, name, lane), {r for r in own if own[r][1] >= length}, waiting,
                   fresh=False)

    @staticmethod
    def held(function, buffers, request):
        return any(request in forwarding.buffer_layout(function, b).by_name for b in buffers)

    def touch(self, function, buffers, env, who, names, waiting, fresh):
        waiting -= names if fresh else set()
        for buffer, (memory, start) in buffers.items():
            layout = forwarding.buffer_layout(function, buffer)
            for name in names & set(layout.by_name):
                self.own(memory, start, layout, layout.by_name[name], env, who, fresh)

    def callees(self, call):
        if call.kind == BRANCH:
            return [call.callees[self.chosen if call.taken is None else call.taken]]
        return list(call.callees)

    def bind(self, call, env):
        for local in self.module.bound(call).values():
            if local in self.runtime:
                env[local] = self.runtime[local]

    def running(self, function, call, callee, env, buffers):
        """The callee's runs that go on at the same time, one per lane, block and overlapping iteration."""
        target = self.module.function(callee)
        counts = [size.count(env, "blocks") for size in launch_shape(call, target)]
        self.launches.append((callee, *counts))
        trips = self.trips.get(call.variable, 2) if call.kind == LOOP else 1
        overlap = call.overlap.count(env)
        for begin in range(0, trips, overlap):
            together = []
            for iteration in range(begin, min(trips, begin + overlap)):
                for block in range(counts[0]):
                    for lane in range(counts[1]):
                        base = None
                        if target.workspace is not None:
                            memory, start = buffers[call.workspace.buffer]
                            base = memory, start + self.slice_of(
                                self.module, function.name, call, callee, env, block, lane, iteration
                            )
                        inner = forwarding.scalars(call, env, iteration)
                        together.append(self.function(callee, inner, base, (block, lane)))
            if begin + overlap >= trips:
                return together
            self.finish(together)
        return []

    def own(self, memory, start, layout, request, env, who, fresh):
        place, bytes = layout.place(request.name, env), request.bytes.value(env)
        assert bytes <= place.slot_stride
        for ring in range(place.rings):
            for slot in range(place.slots):
                for lane in range(place.lanes):
                    at = start + layout.offset(request.name, ring, slot, lane, env)
                    assert at % request.alignment == 0
                    owner = (*who, request.name, ring, slot, lane)
                    if request.persistent:
                        owner = (id(memory), start, *owner[1:])
                    known = request.persistent and owner in self.persisting
                    for low, count in {(at, min(EDGE, bytes)), (at + max(0, bytes - EDGE), min(EDGE, bytes))}:
                        if known or not fresh:
                            memory.read(low, count, owner)
                        else:
                            memory.write(low, bytearray(count), owner)
                    if request.persistent:
                        self.persisting.add(owner)
