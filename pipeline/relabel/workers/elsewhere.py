"""Units made by a Dask cluster: a unit a worker at a time; what a lost worker had is made by another."""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import CancelledError
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
_LOSSES = 3  # workers that may be lost over one unit
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
        waiting, flying, losses = deque(units), dict[Any, tuple[Unit, str]](), Counter[Unit]()
        try:
            while waiting or flying:
                there = self._workers()
                for future in [f for f, (_, address) in flying.items() if address not in there and not f.done()]:
                    unit, _ = flying.pop(future)
                    future.cancel(force=True)
                    losses[unit] += 1
                    self._lost(unit, losses[unit])
                    waiting.append(unit)
                busy = {address for _, address in flying.values()}
                for address in [a for a in there if a not in busy][: len(waiting)]:
                    unit = waiting.popleft()
                    flying[self._send(unit, address)] = unit, address
                for future in self._wait(list(flying)):
                    unit, _ = flying.pop(future)
                    if self._ended(future, unit):
                        task.advance(unit.size)
                    else:
                        losses[unit] += 1
                        self._lost(unit, losses[unit])
                        waiting.append(unit)
        finally:
            for future in flying:
                future.cancel(force=True)

    def _wait(self, futures: list[Any]) -> list[Any]:
        """Wait a little for any of them to end."""
        from distributed import wait

        try:
            with self._client.as_current():
                return list(wait(futures, timeout=_LOOK, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            return []
        except CancelledError:  # which is how futures end that a scheduler took with it
            return [future for future in futures if future.done()]

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
        # Bound to its worker, so that each has one unit. Dask itself would leave a unit that may go elsewhere waiting
        # for ever where the last worker is lost and a new one comes.
        key = f"{self._order.draft.kind}-{unit.file}-{secrets.token_hex(4)}"
        return self._client.submit(make_unit, self._sent, unit, key=key, workers=[address], pure=False)

    def _workers(self) -> list[str]:
        """Wait for at least one worker, and return the addresses of all."""
        begun = time.monotonic()
        while True:
            try:
                there = sorted(self._client.nthreads())
            except OSError as error:
                raise PartialError(f"the scheduler is lost ({error})", where=self.name, todo=_AGAIN) from error
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
        """Say whether a unit was made; False if its worker was lost. Raises what the unit raised."""
        from distributed import KilledWorker

        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                return False
            raise error
        if future.status != "finished":
            return False
        begun = time.monotonic()
        while not self._work.done(unit.file):  # a network file system may show it late
            if time.monotonic() - begun > PATIENCE:
                raise PartialError("a worker made it, and it is not seen here", where=unit.file, todo=_AGAIN)
            time.sleep(_LOOK)
        return True

    def _lost(self, unit: Unit, times: int) -> None:
        """Refuse to give one unit to yet another worker when it has ended too many."""
        if times > _LOSSES:
            what = f"{unit.file} ended the {times} workers that tried it; too little memory is the common reason"
            raise PartialError(what, where=self.name, todo=_AGAIN)
