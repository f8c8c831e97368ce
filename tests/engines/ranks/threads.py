"""Device programs on threads, one per device, in one workspace: the runner without processes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from eggshard.engines.processes.mailboxes import Mailboxes
from eggshard.engines.processes.shared_memory import SharedMemoryCommunicator
from eggshard.engines.ranks.runner import Runner
from eggshard.engines.workspace.steps import workspace_of

#: After these a device that waits for another is taken to wait forever.
SECONDS = 120.0


def run_on_threads(program, shards, before=None, fill=0xAB, **watched):
    """The outputs ``[devices, *local shape]`` of a device program; all else of the workspace begins as ``fill``.

    before: inputs on which the same runners run first.
    """
    count = program.mesh.size
    layout = workspace_of(program).layout
    stride = layout.stride
    workspace = np.full(layout.total(count), fill, np.uint8)
    pipes = [os.pipe() for _ in range(count)]
    runners = []
    for device, (own, _) in enumerate(pipes):
        boxes = Mailboxes(device, own, [write for _, write in pipes])
        memory = workspace[device * stride : (device + 1) * stride]
        communicator = SharedMemoryCommunicator(workspace, stride, boxes)
        runner = Runner(program, layout.offset, memory, communicator, **watched)
        runners.append((runner, memory))
    try:
        with ThreadPoolExecutor(count) as pool:
            for inputs in (shards,) if before is None else (before, shards):
                for device, (runner, memory) in enumerate(runners):
                    for buffer, array in zip(runner.inputs, inputs, strict=True):
                        buffer.view(memory)[...] = array[device]
                for done in [pool.submit(runner.run) for runner, _ in runners]:
                    done.result(SECONDS)
    finally:
        for pair in pipes:
            for end in pair:
                os.close(end)
    columns = zip(*([b.view(memory).copy() for b in runner.outputs] for runner, memory in runners), strict=True)
    return [np.stack(column) for column in columns]
