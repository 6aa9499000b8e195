"""Work done on a Ray cluster. All its machines must see the folder of runs, the models and the data."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import socket
from typing import Any

from maqee.errors import MaqeeError
from maqee.tables.do_work import do_work
from maqee.tables.in_process import describe
from maqee.tables.work import Place, Work
from maqee.tables.work_queue import WorkQueue

LOCAL = "local"  # a cluster of this machine, for as long as the table takes


def run_on_ray(queue: WorkQueue, place: Place, address: str, jobs: int) -> None:
    """Do everything on a cluster; pieces of a worker that died are taken up again.

    Args:
        queue: what is to be done.
        place: where; the same folder on every machine.
        address: of the cluster, "auto" for the one that this machine belongs to, or "local".
        jobs: on a GPU, how many pieces run side by side; of a local cluster without one, how many workers it has.
    """
    ray = require_ray()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, jobs)
    try:
        gpus = ray.cluster_resources().get("GPU", 0.0)
        remote = ray.remote(num_cpus=1, num_gpus=1 / jobs if gpus else 0, max_retries=0)(_answer)
        _keep_busy(ray, remote, queue, place)
    finally:
        if ours:
            ray.shutdown()


def require_ray() -> Any:
    """The package; the user's error where it is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MaqeeError("ray: the package is not installed: pip install 'maqee[ray]', or leave it out.")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # work without a GPU leaves the variables alone
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    import ray

    return ray


def _connect(ray: Any, address: str, jobs: int) -> None:
    _check_answers(address)
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING, "configure_logging": False}
    try:
        if address == LOCAL:
            ray.init(num_cpus=jobs, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise MaqeeError(f"ray: no cluster answers at {address!r} ({describe(error):.200}): start one.") from error


def _check_answers(address: str) -> None:
    """Complain at once where nobody listens: Ray itself tries for minutes."""
    found = re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise MaqeeError(f"ray: nobody answers at {address} ({error}): start a cluster there.") from error


def _keep_busy(ray: Any, remote: Any, queue: WorkQueue, place: Place) -> None:
    running: dict[Any, Work] = {}
    while True:
        while (work := queue.take()) is not None:
            running[remote.remote(work, place)] = work
        if not running:
            return
        [done], _ = ray.wait(list(running), num_returns=1)
        work = running.pop(done)
        try:
            computed, reason = ray.get(done)
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError):
            queue.lose(work)
            continue
        except ray.exceptions.RayError as error:
            computed, reason = False, describe(error)
        if reason is None:
            queue.finish(work, computed)
        else:
            queue.fail(work, reason)


def _answer(work: Work, place: Place) -> tuple[bool, str | None]:
    """Do one piece; what goes wrong is an answer too."""
    try:
        return do_work(work, place), None
    except Exception as error:
        return False, describe(error)
