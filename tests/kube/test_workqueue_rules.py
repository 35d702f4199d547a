"""WorkQueue against a simple model, with random operations.

Two more properties are checked without the model: no key is with two workers at a time, and each key is handed out
after it was last added.
"""
# ruff: noqa: D102, D107 - the rules of the machine are named after what they do

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from prometheus_client import CollectorRegistry

from wva.instruments import Instruments
from wva.kube.workqueue import BACKOFF_CAP_SECONDS, WorkQueue, backoff_seconds

KEYS = st.sampled_from("abcd")
DELAYS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])


class Queue:
    """A WorkQueue whose time is an argument of each call, with workers that do not wait."""

    def __init__(self):
        """Start without keys."""
        self.time = 0.0
        self.registry = CollectorRegistry()
        clock = SimpleNamespace(monotonic=lambda: self.time)
        self.queue = WorkQueue("test", clock=clock, instruments=Instruments(self.registry))

    @property
    def adds(self):
        return self.registry.get_sample_value("wva_workqueue_adds_total", {"queue": "test"})

    def add(self, key, *, low=False):
        """Add a key, and return whether the queue counts it as new."""
        before = self.adds
        self.queue.add(key, low=low)
        return self.adds > before

    def add_after(self, key, seconds, now):
        self.time = now
        self.queue.add_after(key, seconds)

    def add_rate_limited(self, key, now):
        self.time = now
        self.queue.add_rate_limited(key)

    def ready(self, now):
        self.time = now
        return len(self.queue)

    def take(self, now):
        """Return the next key, None if a worker would have to wait."""
        if not self.ready(now):
            return None
        with pytest.raises(StopIteration) as ended:
            self.queue.get().send(None)
        return ended.value.value

    def __getattr__(self, name):
        """Take all other attributes from the queue."""
        return getattr(self.queue, name)


class QueueRules(RuleBasedStateMachine):
    """The model: two lists of waiting keys, a set of keys that workers have, a dict of keys added meanwhile."""

    def __init__(self):
        super().__init__()
        self.core = Queue()
        self.now = 0.0
        self.high, self.low = [], []
        self.working, self.dirty = set(), {}
        self.due = {}
        self.failures = {}
        self.asked, self.handed_out = {}, {}
        self.asked_for_time = {}
        self.step = 0

    def model_add(self, key, *, low=False):
        if key in self.working:
            self.dirty[key] = low and self.dirty.get(key, True)
        elif key in self.low and not low:
            self.low.remove(key)
            self.high.append(key)
        elif key not in self.high + self.low:
            (self.low if low else self.high).append(key)

    def model_promote(self):
        for key in sorted((key for key, due in self.due.items() if due <= self.now), key=self.due_order):
            del self.due[key]
            self.model_add(key)

    def due_order(self, key):
        return (self.due[key], self.asked_for_time[key])

    def model_delay(self, key, seconds):
        if seconds <= 0:
            self.model_add(key)
        elif self.now + seconds < self.due.get(key, float("inf")):
            self.due[key] = self.now + seconds
            self.asked_for_time[key] = self.steps()

    def steps(self):
        self.step += 1
        return self.step

    def ask(self, key):
        self.asked[key] = self.steps()

    @rule(key=KEYS, low=st.booleans())
    def add(self, key, low):
        known = key in self.dirty if key in self.working else key in self.high + self.low
        assert self.core.add(key, low=low) is not known
        self.model_add(key, low=low)
        self.model_promote()
        self.ask(key)

    @rule(key=KEYS, seconds=DELAYS)
    def add_after(self, key, seconds):
        self.core.add_after(key, seconds, self.now)
        self.model_delay(key, seconds)
        self.model_promote()
        self.ask(key)

    @rule(key=KEYS)
    def add_rate_limited(self, key):
        failures = self.failures.get(key, 0)
        self.core.add_rate_limited(key, self.now)
        self.model_delay(key, min(0.005 * 2**failures, 1000.0))
        self.failures[key] = failures + 1
        self.model_promote()
        self.ask(key)

    @rule(key=KEYS)
    def forget(self, key):
        self.core.forget(key)
        self.failures.pop(key, None)

    @rule()
    def take(self):
        key = self.core.take(self.now)
        self.model_promote()
        waiting = self.high or self.low
        assert key == (waiting.pop(0) if waiting else None)
        if key is not None:
            assert key not in self.working, "two workers on one key"
            self.working.add(key)
            self.handed_out[key] = self.steps()

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.core.done(key)
        self.working.remove(key)
        if key in self.dirty:
            self.model_add(key, low=self.dirty.pop(key))
        self.model_promote()

    @rule(seconds=DELAYS)
    def let_time_pass(self, seconds):
        self.now += seconds
        self.core.time = self.now

    @invariant()
    def agrees_with_the_model(self):
        assert self.core.next_due == min(self.due.values(), default=None)
        for key in "abcd":
            assert self.core.retries(key) == self.failures.get(key, 0)

    @rule()
    def count_ready(self):
        ready = self.core.ready(self.now)
        self.model_promote()
        assert ready == len(self.high) + len(self.low)
        assert self.core.idle is not bool(ready or self.working)

    def teardown(self):
        for key in sorted(self.working):
            self.core.done(key)
        self.now += 2 * BACKOFF_CAP_SECONDS
        while (key := self.core.take(self.now)) is not None:
            self.handed_out[key] = self.steps()
            self.core.done(key)
        lost = [key for key, step in self.asked.items() if self.handed_out.get(key, 0) < step]
        assert not lost, f"asked for and never handed out: {lost}"


def test_random_operations_agree_with_the_model():
    """After any operations the queue agrees with the model and has lost no key."""
    run_state_machine_as_test(QueueRules, settings=settings(deadline=None, stateful_step_count=40))


def test_a_key_added_twice_is_handed_out_once():
    """Keys are added once until a worker takes them."""
    core = Queue()
    core.add("a")
    core.add("a")
    assert core.take(0.0) == "a"
    core.done("a")
    assert core.take(0.0) is None


def test_a_key_added_during_its_reconcile_comes_again_after_done():
    """A change that arrives while a worker has the key is neither lost nor given to a second worker."""
    core = Queue()
    core.add("a")
    core.take(0.0)
    core.add("a")
    assert core.take(0.0) is None
    core.done("a")
    assert core.take(0.0) == "a"


def test_real_changes_overtake_the_first_list():
    """A key of low priority waits for all others. It gets high priority when its object changes."""
    core = Queue()
    for key in ("old-1", "old-2", "old-3"):
        core.add(key, low=True)
    core.add("new")
    core.add("old-3")
    assert [core.take(0.0) for _ in range(4)] == ["new", "old-3", "old-1", "old-2"]


def test_a_low_priority_add_does_not_demote_a_change():
    """A key that was added with both priorities keeps the high one."""
    core = Queue()
    core.add("x", low=True)
    core.add("a")
    core.add("a", low=True)
    assert core.take(0.0) == "a"
    core.add("a")
    core.add("a", low=True)
    core.done("a")
    assert core.take(0.0) == "a"


def test_the_earliest_time_asked_for_counts():
    """A later time changes nothing, an earlier one replaces the first, and the key comes once."""
    core = Queue()
    core.add_after("a", 10.0, 0.0)
    core.add_after("a", 20.0, 0.0)
    core.add_after("a", 5.0, 0.0)
    assert core.next_due == 5.0
    assert core.take(4.9) is None
    assert core.take(5.0) == "a"
    core.done("a")
    assert core.next_due is None
    assert core.take(100.0) is None


def test_an_immediate_add_leaves_the_timer():
    """A key with a timer comes at its time, even if it was added and handled before."""
    core = Queue()
    core.add_after("a", 10.0, 0.0)
    core.add("a")
    assert core.take(0.0) == "a"
    core.done("a")
    assert core.take(10.0) == "a"


def test_due_keys_come_in_the_order_of_their_times():
    """Due keys come in the order of their times, even if the worker is late."""
    core = Queue()
    core.add_after("late", 3.0, 0.0)
    core.add_after("early", 1.0, 0.0)
    core.add_after("also early", 1.0, 0.0)
    assert [core.take(9.0) for _ in range(3)] == ["early", "also early", "late"]


def test_backoff_doubles_from_5_ms_to_1000_s():
    """The delays are those of client-go, and large counts do not overflow."""
    assert [backoff_seconds(n) for n in (0, 1, 2, 17, 18, 10_000)] == [0.005, 0.01, 0.02, 655.36, 1000.0, 1000.0]


def test_backoff_is_counted_per_key_and_forgotten_on_request():
    """Failures of one key do not delay another one."""
    core = Queue()
    for now in (0.0, 1.0, 2.0):
        core.add_rate_limited("a", now)
        assert core.take(now + 0.5) == "a"
        core.done("a")
    core.add_rate_limited("b", 3.0)
    assert core.next_due == 3.005
    assert core.retries("a") == 3
    core.forget("a")
    assert core.retries("a") == 0
    core.add_rate_limited("a", 2.0)
    assert core.next_due == 2.005


def test_done_for_a_key_nobody_has_is_an_error():
    """``done`` for a key that no worker has raises KeyError."""
    with pytest.raises(KeyError):
        Queue().done("a")
