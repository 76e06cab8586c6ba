"""Units made by a Dask cluster: a unit a worker at a time; what a lost worker had is made by another."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from relabel.errors import MissingError, PartialError
from relabel.progress import Task
from relabel.store.atomic import write_text
from relabel.store.units import Unit, Units
from relabel.store.work import Work
from relabel.workers.clusters import connected, share
from relabel.workers.order import Order
from relabel.workers.worker import make_unit

PATIENCE = 60.0
"""Seconds to wait for a first worker, for another after the last one is lost, and for a file to be seen."""
_LOOK = 0.5  # seconds between looks at which workers are there
_AGAIN = "Run it again; finished files are kept."


def make_elsewhere(units: Units, work: Work, order: Order) -> None:
    """Make every unit that is not done in a Dask cluster; see `relabel.workers.make`."""
    runtime = order.project.runtime
    units.start(work)
    with ExitStack() as stack:
        crew = Crew(order, work, stack)
        for phase in units.phases(work):
            waiting = [unit for unit in phase.units if not work.done(unit.file)]
            total = sum(unit.size for unit in phase.units)
            title = f"{phase.title}, {crew.name}" if waiting else phase.title
            with runtime.progress.task(title, total, phase.measure) as task:
                task.advance(total - sum(unit.size for unit in waiting))
                if waiting:
                    crew.make(waiting, task)
    units.finish(work)


class Crew:
    """The workers of one job, called together with its first unit.

    Parameters
    ----------
    order : Order
    work : Work
    stack : ExitStack
        Ends what is begun here.
    """

    def __init__(self, order: Order, work: Work, stack: ExitStack) -> None:
        self._order, self._work, self._stack = order, work, stack
        self._runtime, self._met = order.project.runtime, False

    @property
    def name(self) -> str:
        """What a bar calls them."""
        if self._runtime.scheduler is not None:
            return f"workers of {self._runtime.scheduler}"
        return f"{self._runtime.workers} workers"

    def make(self, units: Sequence[Unit], task: Task) -> None:
        """Make units that need nothing of each other, each on the first worker that has nothing to do.

        Raises
        ------
        MissingError, CheckError, PartialError, RelabelError
            See `relabel.workers.make`.
        """
        client = self._client
        from distributed import wait

        waiting, flying = deque(units), dict[Any, tuple[Unit, str]]()
        try:
            while waiting or flying:
                there = self._workers()
                busy = {address for _, address in flying.values()}
                for address in [a for a in there if a not in busy][: len(waiting)]:
                    unit = waiting.popleft()
                    flying[self._send(unit, address)] = unit, address
                try:
                    with client.as_current():
                        ended = wait(list(flying), timeout=_LOOK, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    continue
                for future in ended:
                    unit, _ = flying.pop(future)
                    if self._ended(future, unit):
                        task.advance(unit.size)
                    else:
                        waiting.append(unit)
        finally:
            for future in flying:
                future.cancel(force=True)

    @cached_property
    def _client(self) -> Any:
        return self._stack.enter_context(connected(self._runtime))

    @cached_property
    def _sent(self) -> Order:
        """Put the token into the work folder, to be gone when the job is."""
        token = f".order-{secrets.token_hex(8)}"
        write_text(self._work.folder / token, token)
        self._stack.callback((self._work.folder / token).unlink, missing_ok=True)
        return self._order.portable(token, *share(self._runtime))

    def _send(self, unit: Unit, address: str) -> Any:
        # Bound to a worker so that each has one unit, loosely: if it is lost, Dask gives the unit to another.
        key = f"{self._order.draft.kind}-{unit.file}-{secrets.token_hex(4)}"
        options = {"key": key, "workers": [address], "allow_other_workers": True, "pure": False}
        return self._client.submit(make_unit, self._sent, unit, **options)

    def _workers(self) -> list[str]:
        """Wait for at least one worker, and return the addresses of all."""
        begun = time.monotonic()
        while True:
            try:
                there = sorted(self._client.nthreads())
            except OSError as error:
                raise PartialError(f"the Dask scheduler is lost ({error})", where=self.name, todo=_AGAIN) from error
            if there:
                self._met = True
                return there
            if time.monotonic() - begun > PATIENCE:
                if self._met:
                    raise PartialError("all workers are lost", where=self.name, todo=_AGAIN)
                todo = "Start some: `dask worker ADDRESS`."
                raise MissingError(f"no worker came within {PATIENCE:.0f} s", where=self.name, todo=todo)
            time.sleep(_LOOK)

    def _ended(self, future: Any, unit: Unit) -> bool:
        """Say whether a unit was made; False if it must be sent again. Raises what the unit raised."""
        from distributed import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                what = f"{unit.file} ended every worker that tried it: too little memory is the common reason"
                raise PartialError(what, where=self.name, todo=_AGAIN) from error
            raise error
        if future.status != "finished":
            return False
        begun = time.monotonic()
        while not self._work.done(unit.file):  # a network file system may show it late
            if time.monotonic() - begun > PATIENCE:
                raise PartialError("a worker made it, and it is not seen here", where=unit.file, todo=_AGAIN)
            time.sleep(_LOOK)
        return True
