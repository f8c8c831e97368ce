"""Directories of workers: removed by the next one where a worker was killed, and never while one lives."""

import os
import tempfile

from eggshard.worker import Worker


def test_directories_of_ended_workers_are_removed_by_the_next():
    living = Worker()
    live = living.call("eggshard.worker:scratch_directory", seconds=10)
    killed, other = Worker(), Worker()
    left = killed.call("eggshard.worker:scratch_directory", seconds=10)
    os.kill(killed.pid, 9)
    killed._process.wait()
    never = tempfile.mkdtemp(prefix="eggshard-worker-", dir=os.path.dirname(left))
    begun = tempfile.mkdtemp(prefix="eggshard-worker-", dir=os.path.dirname(left))
    os.utime(never, (0, 0))
    other.start()
    assert not os.path.exists(left) and not os.path.exists(never)
    assert os.path.isdir(live) and os.path.isdir(begun)
    os.rmdir(begun)
    for each in (living, killed, other):
        each.close()
