"""The harness reports a controller that a test breaks on purpose."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time

import pytest

from tests.attack import meter
from tests.attack.harness import Attack, ExpectedCondition, ExpectedEvent, ExpectedNumber, survive
from tests.attack.world import HPAS, VICTIM
from tests.rows import by_day
from wva.publish.ledger import Ledger

RECORD = "wva.publish.ledger.Ledger.record"
_record = Ledger.record


def burn(seconds):
    """Use the CPU for some time."""
    limit = time.thread_time() + seconds
    while time.thread_time() < limit:
        pass


def keep_the_lock():
    """Keep the interpreter's lock in another thread, in C code, for more than half a second."""
    threading.Thread(target=sum, args=(range(4 * 10**7),)).start()


def with_every_record(act):
    """Return settings that call ``act`` whenever the controller records its decisions."""

    def record(ledger, decisions):
        act()
        _record(ledger, decisions)

    return {RECORD: record}


def once(act):
    """Return a function that acts only the first time."""
    left = [act]
    return lambda: left.pop()() if left else None


def hoard():
    """Allocate 256 MB and free them after 0.1 s."""
    much = bytearray(b"x") * 2**28
    asyncio.get_running_loop().call_later(0.1, much.clear)


def fail():
    """Fail."""
    raise RuntimeError("broken on purpose")


async def spoil(world):
    """Let Prometheus refuse all queries."""
    world.prometheus.faults.status = 400


def squeeze(world):
    """Raise the minimum of the victim's HPA to 4."""
    world.patch(HPAS, "hpa", {"spec": {"minReplicas": 4}}, namespace=VICTIM)


async def leave(world):
    """End the process."""
    world.stop.set()
    await asyncio.sleep(0.2)


BROKEN = [
    (Attack("slow", setting=with_every_record(lambda: burn(0.3))), r"a piece of work of .* took 3\d\d ms"),
    (Attack("locked", setting=with_every_record(keep_the_lock)), "the event loop took"),
    (Attack("greedy", setting=with_every_record(once(hoard))), "memory grew by 2"),
    (Attack("failing", setting=with_every_record(fail)), "the victim gets 2"),
    (Attack("spoiled", during=spoil), "the victim is held: PrometheusError"),
    (Attack("ended", during=leave), "the process has ended"),
    (Attack("forgotten", during=lambda world: world.delete_va()), "the victim's number is None"),
    (Attack("scaled", during=squeeze), "the victim's number is 4"),
    (Attack("silent", shows=ExpectedCondition("Ready", "False")), "the tenant is told"),
    (Attack("without_event", shows=ExpectedEvent("NeverRecorded")), "the tenant is told"),
]


@pytest.mark.parametrize(
    ("attack", "complaint"),
    [
        pytest.param(*row, id=row[0].name, marks=() if row[0].name == "spoiled" else pytest.mark.nightly)
        for row in BROKEN
    ],
)
async def test_what_is_broken_is_noticed(world, monkeypatch, attack, complaint):
    """The error of the harness names the fault."""
    monkeypatch.setattr("tests.attack.harness.PATIENCE_SECONDS", 4.0)
    with pytest.raises(AssertionError, match=complaint):
        await survive(world, attack)


def collect_beside(_):
    """Collect garbage in another thread for half a second, while the event loop does the test's work."""

    def take_time(phase, _):
        if phase == "start" and threading.current_thread() is thread:
            burn(0.5)

    thread = threading.Thread(target=gc.collect, args=(0,))
    gc.callbacks.append(take_time)
    try:
        thread.start()
        burn(0.05)
        thread.join()
    finally:
        gc.callbacks.remove(take_time)


QUIET = [
    Attack("a_piece_that_does_not_come_back", setting=with_every_record(once(lambda: burn(0.3)))),
    Attack("a_lag_that_does_not_come_back", setting=with_every_record(once(keep_the_lock))),
    Attack("nothing_at_all", shows=ExpectedNumber(1)),
    Attack("nothing_at_all_with_a_model_at_zero", shows=ExpectedNumber(1), gateway=True),
    Attack("work_of_others", shows=ExpectedNumber(1), during=lambda _: burn(0.4)),
    Attack("collections_beside_work_of_others", shows=ExpectedNumber(1), during=collect_beside),
]


@pytest.mark.parametrize("attack", by_day(QUIET, ["nothing_at_all"]), ids=str)
async def test_what_is_healthy_survives(world, attack):
    """The harness does not count the work of the test and of the servers as the controller's."""
    await survive(world, attack)


def test_a_thread_that_waits_for_a_core_is_told_from_one_that_works():
    """Two busy threads share one core; the meter counts the time that this thread waits for it."""
    allowed, core = os.sched_getaffinity(0), min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        with meter.waits() as waited_for_a_core:
            waited, began = waited_for_a_core(), time.monotonic()
            burn(0.2)
            share = (waited_for_a_core() - waited) / (time.monotonic() - began)
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, allowed)
    assert 0.2 < share < 0.95
