"""At most one process may write, under random events of processes, clocks and network.

Time passes unevenly, clocks have offsets and rates of their own (rates differ by less than lease duration over renew
deadline, as the protocol requires), requests get lost before or after they were executed or arrive late,
processes stop, go on, die, leave and start. At every instant of true time at most one process may write, stopped ones
included. When all failures end, one process soon leads and stays leader. Another instance has a Lease and a leader
of its own, independent of the first.
"""
# ruff: noqa: D102, D107 - the rules of the machine are named after what they do

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from structlog.testing import capture_logs

from tests.kube.lease_world import KEY, LeaseWorld
from wva.api.meta import Key
from wva.kube.errors import Unreachable

OFFSETS = st.sampled_from([0.0, 5e3, 1e6])
RATES = st.sampled_from([1.0, 0.95, 1.05])
SECONDS = st.sampled_from([0.1, 1.0, 5.0, 9.0, 11.0, 20.0, 26.0, 45.0, 61.0, 90.0])
RECOVERY_SECONDS = 200.0
MAX_ALIVE = 6
BLUE = Key(KEY.namespace, f"blue.{KEY.name}")


class Election(RuleBasedStateMachine):
    """Random events of processes and network."""

    def __init__(self):
        super().__init__()
        self.world = LeaseWorld()
        self.deleted = False
        self.world.after_each_step = self.at_most_one_writer

    def at_most_one_writer(self):
        for key in (KEY, BLUE):
            writers = [process.elector.identity for process in self.world.writers if process.key == key]
            assert len(writers) <= 1, f"{writers} may write at {self.world.time}"

    def pick(self, data, processes):
        return data.draw(st.sampled_from(processes))

    @initialize(clocks=st.lists(st.tuples(OFFSETS, RATES), min_size=2, max_size=3), blue=st.booleans())
    def start_candidates(self, clocks, blue):
        for offset, rate in clocks:
            self.world.start(offset=offset, rate=rate)
        if blue:
            for offset, rate in clocks[:2]:
                self.world.start(offset=offset, rate=rate, key=BLUE)

    @rule(seconds=SECONDS, nudge=st.booleans())
    def let_time_pass(self, seconds, nudge):
        self.world.advance(seconds)
        if nudge:
            self.nudge()

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data(), mode=st.sampled_from(["works", "slow", "slow", "cut"]))
    def change_network(self, data, mode):
        self.pick(data, self.world.alive).client.mode = mode
        self.world.turn()

    def calls(self):
        return [call for process in self.world.processes for call in process.client.calls]

    def forget(self, call):
        call.process.client.calls.remove(call)
        self.world.turn()

    @precondition(lambda self: self.calls())
    @rule(data=st.data())
    def deliver_request(self, data):
        self.pick(data, self.calls()).deliver()

    @precondition(lambda self: self.calls())
    @rule(data=st.data())
    def deliver_and_answer(self, data):
        call = self.pick(data, self.calls())
        call.deliver()
        call.finish(call.outcome)
        self.forget(call)

    @precondition(lambda self: self.calls())
    @rule(data=st.data())
    def break_connection(self, data):
        call = self.pick(data, self.calls())
        call.finish(Unreachable(0, "", "connection reset"))
        self.forget(call)

    @precondition(lambda self: self.world.alive)
    @rule(data=st.data())
    def stop_or_continue(self, data):
        process = self.pick(data, self.world.alive)
        process.stopped = not process.stopped
        self.at_most_one_writer()
        self.world.turn()

    @precondition(lambda self: self.world.writers)
    @rule(seconds=SECONDS)
    def stop_the_leader_for_a_while(self, seconds):
        leader = self.world.writers[0]
        leader.stopped = True
        self.world.advance(seconds)
        leader.stopped = False
        self.world.turn()

    def nudge(self):
        for process in self.world.alive:
            process.elector.nudge()
        self.world.turn()

    # The next two rules are dangerous sequences of events that random events alone seldom produce.
    @precondition(lambda self: [process for process in self.world.writers if not process.stopped])
    @rule(rounds=st.integers(1, 5), backwards=st.booleans())
    def let_candidates_race_for_a_released_lease(self, rounds, backwards):
        leader = self.world.writers[0]
        for process in self.world.alive:
            process.client.mode = "works" if process is leader else "slow"
        leader.leave()
        self.world.turn()
        self.nudge()
        for _ in range(rounds):
            calls = self.calls()[:: -1 if backwards else 1]
            for call in calls:
                call.deliver()
            for call in calls:
                call.finish(call.outcome)
                self.forget(call)

    @precondition(lambda self: [process for process in self.world.writers if not process.stopped])
    @rule(late=st.sampled_from([0.0, 8.0, 16.0, 24.0]), later=st.sampled_from([20.0, 60.0]))
    def answer_a_renewal_late_and_nothing_after_it(self, late, later):
        leader = self.world.writers[0]
        leader.client.mode = "slow"
        for _ in range(22):
            if not leader.client.calls:
                self.world.advance(0.5)
        calls, leader.client.calls = leader.client.calls, []
        for call in calls:
            call.deliver()
        self.nudge()
        self.world.advance(late)
        for call in calls:
            call.finish(call.outcome)
        self.world.turn()
        leader.client.mode = "cut"
        self.world.advance(later)

    @precondition(lambda self: len(self.world.alive) > 2)
    @rule(data=st.data())
    def kill(self, data):
        self.pick(data, self.world.alive).kill()

    @precondition(lambda self: len(self.running()) > 2)
    @rule(data=st.data())
    def leave(self, data):
        self.pick(data, self.running()).leave()
        self.world.turn()

    # A process that has never seen the Lease takes a missing one for a new installation, so the Lease must exist.
    @precondition(lambda self: len(self.world.alive) < MAX_ALIVE and self.world.server.leases)
    @rule(data=st.data(), offset=OFFSETS, rate=RATES)
    def start_another(self, data, offset, rate):
        key = data.draw(st.sampled_from(sorted(self.world.server.leases)))
        self.world.start(offset=offset, rate=rate, key=key)

    # For the same reason the Lease is deleted only once, and only when every process has seen it.
    @precondition(
        lambda self: (
            self.world.time > 300.0
            and not self.deleted
            and all(process.elector._stored for process in self.world.alive if process.key == KEY)
        )
    )
    @rule()
    def delete_the_lease(self):
        self.deleted = True
        self.world.server.delete()
        self.world.turn()

    def running(self):
        return [process for process in self.world.alive if not process.stopped]

    def teardown(self):
        try:
            self.recovers()
        finally:
            self.world.close()

    def recovers(self):
        world = self.world
        for process in world.alive:
            process.client.mode = "works"
            process.stopped = False
        for call in self.calls():
            call.finish(Unreachable(0, "", "connection reset"))
        for _ in range(2):  # a former leader may need the first round to find out that it has lost the Lease
            world.advance(1.0)
            if not world.alive:
                world.start()
            world.advance(RECOVERY_SECONDS)
        leaders = world.writers
        assert sorted(leader.key for leader in leaders) == sorted({process.key for process in world.alive})
        for leader in leaders:
            assert world.server.get(leader.key).spec.holder_identity == leader.elector.identity
        world.advance(RECOVERY_SECONDS)
        assert world.writers == leaders


def test_at_most_one_may_write_and_somebody_leads_in_the_end():
    """No sequence of failures makes two writers, and none blocks the election for ever."""
    with capture_logs():
        run_state_machine_as_test(Election, settings=settings(deadline=None, stateful_step_count=50))
