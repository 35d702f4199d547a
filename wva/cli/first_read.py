"""The first read of the main ConfigMap, before anything is started that its settings concern.

It is read directly, as the caches need settings themselves. Until the API server answers nothing is judged: what is
missing in flags and environment may be in the ConfigMap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from wva.api.kinds import CONFIG_MAPS
from wva.api.meta import Key
from wva.clock import Clock
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, Forbidden, NotFound

_TIMEOUT_SECONDS: Final = 5.0
_BASE_SECONDS: Final = 0.5
_CAP_SECONDS: Final = 10.0


class Unread(Exception):  # noqa: N818 - it says what is the matter with the ConfigMap, not that something broke
    """The main ConfigMap could not be read; the message is one line for the operator."""


async def read_once(client: KubeClient, key: Key) -> Mapping[str, str] | None:
    """Return the data of the main ConfigMap, None when there is none. Raises Unread."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return (await client.get(CONFIG_MAPS, key)).data
    except NotFound:
        return None
    except Forbidden as error:
        raise Unread(
            f"not allowed to read ConfigMap {key}: expected permission to get configmaps in namespace "
            f"{key.namespace}: {error}"
        ) from error
    except (ApiError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_TIMEOUT_SECONDS:g} s"
        raise Unread(f"the cluster at {client.host} cannot be reached for ConfigMap {key}: {reason}") from error


async def read_until_known(
    client: KubeClient, key: Key, *, waiting: Callable[[str], None], clock: Clock
) -> Mapping[str, str]:
    """Return the data of the main ConfigMap, empty when there is none; try for ever, telling ``waiting`` why."""
    backoff = Backoff(base_seconds=_BASE_SECONDS, cap_seconds=_CAP_SECONDS)
    while True:
        try:
            return await read_once(client, key) or {}
        except Unread as error:
            waiting(str(error))
        await clock.sleep(backoff.next(clock.monotonic()))
