"""Work done in this process, one piece after the other."""

from __future__ import annotations

from maqee.errors import MaqeeError, is_gpu_out_of_memory
from maqee.tables.do_work import do_work
from maqee.tables.work import Place, Work
from maqee.tables.work_queue import WorkQueue


def run_here(queue: WorkQueue, place: Place) -> None:
    """Do everything; what fails is noted, and the rest is done."""
    last: Work | None = None
    while (work := queue.take(last)) is not None:
        last = work if work.fitted else last
        try:
            computed = do_work(work, place)
        except Exception as error:  # whatever goes wrong in one run must not cost the others
            queue.fail(work, describe(error))
        else:
            queue.finish(work, computed)


def describe(error: BaseException) -> str:
    """An error in one line: a user's mistake as it is, anything else with its kind."""
    if is_gpu_out_of_memory(error):
        return "The GPU ran out of memory beside the other runs: start again with fewer jobs, finished runs are kept."
    words = " ".join(str(error).split())
    return words if isinstance(error, MaqeeError) else f"{type(error).__name__}: {words}"
