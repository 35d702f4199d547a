"""The first read of the main ConfigMap: which errors WVA waits for, and which lines it logs meanwhile."""

from __future__ import annotations

import pytest

from wva.api.core import ConfigMap
from wva.api.meta import Key
from wva.cli.run import UnreadError, read_once, read_until_known
from wva.kube.errors import Forbidden, NotFound, Unauthorized, Unavailable, Undecodable, Unreachable

KEY = Key("wva", "main")
DATA = {"GLOBAL_OPT_INTERVAL": "5s"}
PASSING = [
    Unreachable(0, "Unreachable", "connection refused"),
    Unavailable(503, "ServiceUnavailable", "etcd is away"),
    Unauthorized(401, "Unauthorized", "token expired"),
    Forbidden(403, "Forbidden", "no such role"),
    Undecodable(200, "Undecodable", "not JSON"),
    TimeoutError(),
]


class ScriptedCluster:
    """Gives its answers in turn and repeats the last one."""

    host = "https://cluster"

    def __init__(self, *answers):
        """Take the answers: data, or errors to raise."""
        self.answers = list(answers)
        self.asked = 0

    async def get(self, resource, key):
        """Answer a read."""
        assert (resource.name, key) == ("configmaps", KEY)
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return ConfigMap(data=answer)


class SkippingClock:
    """Ends each sleep at once and records its length."""

    def __init__(self):
        """Start at zero."""
        self.slept = []

    def monotonic(self):
        """Return the time that was slept."""
        return sum(self.slept)

    async def sleep(self, seconds):
        """Sleep."""
        self.slept.append(seconds)


async def test_the_data_is_what_the_cluster_has():
    """The first read returns the data of the ConfigMap."""
    assert await read_once(ScriptedCluster(DATA), KEY) == DATA


async def test_a_config_map_that_is_not_there_is_known_not_to_be():
    """A missing ConfigMap is no error, because flags and environment may have every setting."""
    cluster = ScriptedCluster(NotFound(404, "NotFound", "no"))
    assert await read_once(cluster, KEY) is None
    assert await read_until_known(cluster, KEY, waiting=pytest.fail, clock=SkippingClock()) == {}


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_whatever_passes_is_waited_for(error):
    """After each error that may pass, one line names the ConfigMap, and the read is tried again."""
    said, clock = [], SkippingClock()
    cluster = ScriptedCluster(error, error, error, DATA)
    assert await read_until_known(cluster, KEY, waiting=said.append, clock=clock) == DATA
    assert cluster.asked == 4
    assert len(said) == len(clock.slept) == 3
    assert all("ConfigMap wva/main" in line and "\n" not in line for line in said)


async def test_a_missing_permission_is_named():
    """The error names the permission that an operator must grant."""
    with pytest.raises(UnreadError, match="expected permission to get configmaps in namespace wva"):
        await read_once(ScriptedCluster(Forbidden(403, "Forbidden", "no")), KEY)


async def test_the_pauses_grow_and_end_at_ten_seconds():
    """WVA does not flood a cluster that starts, and notices within ten seconds that it is up."""
    clock = SkippingClock()
    cluster = ScriptedCluster(*[Unreachable(0, "Unreachable", "no")] * 200, DATA)
    await read_until_known(cluster, KEY, waiting=lambda _: None, clock=clock)
    assert max(clock.slept[:3]) <= 2
    assert 5 < max(clock.slept) <= 10
