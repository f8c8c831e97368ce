"""Runs a device program inside its workspace and nowhere else: poisoned memory, every byte tagged with its owner.

An owner is a device, a buffer and a slot. Bytes are read only where all their tags name who is supposed to be there, so
that whatever overwrote live data, on the same device or from another, is found out at the next read.
"""

import numpy as np

from eggshard.engines.workspace.steps import programs, state_name, value_name
from eggshard.program.types import numpy_dtype
from eggshard.simulate import simulator
from eggshard.steps.control_steps import Branch, Loop

POISON = 0xA5


class ForeignData(AssertionError):
    """A read met bytes that somebody else had written, or nobody."""


class TaggedMemory:
    """Bytes and, for each of them, who wrote it last."""

    def __init__(self, total):
        self.bytes = np.full(total, POISON, np.uint8)
        self.tags = np.full(total, -1, np.int64)
        self.owners = {}

    def tag(self, owner):
        return self.owners.setdefault(owner, len(self.owners))

    def write(self, at, data, owner):
        if not 0 <= at <= at + len(data) <= len(self.bytes):
            raise ForeignData(f"{owner} writes outside the workspace")
        self.bytes[at : at + len(data)] = data
        self.tags[at : at + len(data)] = self.tag(owner)

    def read(self, at, count, owner):
        if (self.tags[at : at + count] != self.tag(owner)).any():
            raise ForeignData(f"{owner} does not find its own data")
        return self.bytes[at : at + count].copy()


class Run:
    """One run of a workspace's program on all devices. ``address`` may be replaced, to see faults found."""

    def __init__(self, workspace, address=None):
        self.workspace, self.mesh = workspace, workspace.program.mesh
        self.plans = dict(programs(workspace.program))
        self.memory = TaggedMemory(workspace.layout.total(self.mesh.size))
        self.address = address or workspace.layout.address
        self.slots = {}

    def __call__(self, shards):
        plan = self.workspace.program
        everyone = np.ones(self.mesh.size, bool)
        for v, array in zip(plan.inputs, shards, strict=True):
            self.put(value_name((), v), np.asarray(array), everyone)
        self.perform((), everyone)
        return [self.get((), v, everyone) for v in plan.outputs]

    def where(self, name, device, slot):
        return self.address(name, device, self.mesh.size, slot=slot), (device, name, slot)

    def put(self, name, arrays, active, slots=None):
        for device in np.flatnonzero(active):
            slot = 0 if slots is None else int(slots[device])
            at, owner = self.where(name, int(device), slot)
            self.memory.write(at, np.frombuffer(np.ascontiguousarray(arrays[device]).tobytes(), np.uint8), owner)

    def get(self, path, value, active):
        type_, name = self.plans[path].types[value], self.workspace.home(path, value)
        dtype = numpy_dtype(type_.dtype)
        out = np.zeros((self.mesh.size, *type_.shape), dtype)
        for device in np.flatnonzero(active):
            slot = int(self.slots[name][device]) if name in self.slots else 0
            at, owner = self.where(name, int(device), slot)
            out[device] = np.frombuffer(self.memory.read(at, type_.bytes, owner).tobytes(), dtype).reshape(type_.shape)
        return out

    def perform(self, path, active):
        for i, step in enumerate(self.plans[path].steps):
            if isinstance(step.action, Loop):
                self.loop(path, i, step, active)
            elif isinstance(step.action, Branch):
                self.branch(path, i, step, active)
            else:
                operands = tuple(self.get(path, v, active) for v in step.operands)
                results = simulator.perform(self.mesh, step.action, operands)
                for v, array in zip(step.results, results, strict=True):
                    self.put(value_name(path, v), array, active)

    def loop(self, path, i, step, active):
        states = [state_name(path, i, k) for k in range(len(step.operands))]
        for name, v in zip(states, step.operands, strict=True):
            self.put(name, self.get(path, v, active), active)
            self.slots[name] = np.zeros(self.mesh.size, int)
        condition, body = (*path, i, "condition"), (*path, i, "body")
        going = active
        while True:
            self.perform(condition, going)
            going = going & self.get(condition, self.plans[condition].outputs[0], going).astype(bool)
            if not going.any():
                break
            self.perform(body, going)
            for name, v in zip(states, self.plans[body].outputs, strict=True):
                self.put(name, self.get(body, v, going), going, 1 - self.slots[name])
            for name in states:
                self.slots[name] = np.where(going, 1 - self.slots[name], self.slots[name])
        for inner, v in zip(self.plans[body].inputs, step.results, strict=True):
            self.put(value_name(path, v), self.get(body, inner, active), active)
        for name in states:
            del self.slots[name]

    def branch(self, path, i, step, active):
        selector, last = self.get(path, step.operands[0], active), len(step.action.branches) - 1
        clamped = np.where((selector < 0) | (selector > last), last, selector)
        chosen = np.where(selector, 0, 1) if step.action.predicate else clamped
        for b, inner in enumerate(step.action.branches):
            some = active & (chosen == b)
            if some.any():
                within = (*path, i, "branch", b)
                self.perform(within, some)
                for v, output in zip(step.results, inner.outputs, strict=True):
                    self.put(value_name(path, v), self.get(within, output, some), some)
