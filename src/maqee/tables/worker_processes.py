"""Work done in several processes of this machine. One that dies takes nothing with it: its piece is taken up again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from maqee.progress import console
from maqee.tables.do_work import do_work
from maqee.tables.in_process import describe
from maqee.tables.work import Place, Work
from maqee.tables.work_queue import WorkQueue

FAREWELL = 10.0  # seconds


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    work: Work | None = None
    last: Work | None = None


def run_in_processes(queue: WorkQueue, place: Place, jobs: int) -> None:
    """Do everything in `jobs` processes at once.

    They are started afresh, not forked: a process that has used a GPU cannot be.
    """
    with _threads_shared(jobs):
        workers = [_start(place) for _ in range(jobs)]
        try:
            _keep_busy(queue, place, workers)
        finally:
            _end(workers)


def _keep_busy(queue: WorkQueue, place: Place, workers: list[_Worker]) -> None:
    while True:
        for worker in workers:
            if worker.work is None and (work := queue.take(worker.last)) is not None:
                worker.work = work
                worker.last = work if work.fitted else worker.last
                worker.pipe.send(work)
        busy = [worker for worker in workers if worker.work is not None]
        if not busy:
            return
        ready = wait([worker.pipe for worker in busy])  # a dead process closes its end
        for index, worker in enumerate(workers):
            if worker.pipe in ready and worker.work is not None and not _receive(queue, worker):
                workers[index] = _start(place)


def _receive(queue: WorkQueue, worker: _Worker) -> bool:
    """Take a worker's answer; False if it died instead."""
    work, worker.work = worker.work, None
    assert work is not None
    try:
        computed, reason = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        queue.lose(work)
        return False
    if reason is None:
        queue.finish(work, computed)
    else:
        queue.fail(work, reason)
    return True


def _start(place: Place) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, place), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _end(workers: list[_Worker]) -> None:
    """Let idle workers put their things away; if the user has stopped everything, files are whole at any time."""
    for worker in workers:
        worker.pipe.close()  # which an idle one takes as a farewell
    for worker in workers:
        worker.process.join(0 if worker.work else FAREWELL)
        worker.process.kill()
        worker.process.join()


def _work(pipe: Connection, place: Place) -> None:
    """The life of a worker: pieces come, answers go, and the end is its parent's to decide."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=leave_with_parent, daemon=True).start()
    console.quiet = True  # several bars at once are none
    while True:
        try:
            work: Work = pipe.recv()
        except EOFError:  # the parent is gone
            return
        answer: tuple[bool, str | None]
        try:
            answer = (do_work(work, place), None)
        except Exception as error:
            answer = (False, describe(error))
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


def leave_with_parent() -> None:
    """End this process, busy as it may be, when its parent is gone: killed, nobody else would tell it to stop."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # files are whole at any time


@contextmanager
def _threads_shared(jobs: int) -> Iterator[None]:
    """Let workers share the processor, unless the user's environment says how many threads each has."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]
