"""How a command reaches the API server, and what it says when it cannot: one sentence, with advice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry

from wva.command_error import CommandError
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, ConfigurationError, Forbidden, Unauthorized, Undecodable, Unreachable
from wva.log import printable

_BUSY_SECONDS: Final = 5.0
"""A command waits for so long in all for a server that is busy, as one is after a change of a definition."""
_ADDRESS: Final = "kubectl config view --minify shows its address"
_ADVICE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (ConfigurationError, "name a kubeconfig that works with KUBECONFIG; kubectl config view shows the one of kubectl"),
    (Unauthorized, "log in again, or use another context of the kubeconfig"),
    (Forbidden, "ask for this right; kubectl auth can-i --list shows those that you have"),
    (Undecodable, f"is this the API server of the cluster, and is there a proxy before it? {_ADDRESS}"),
    (Unreachable, f"does the cluster run, and is it the one that you mean? {_ADDRESS}"),
    (ApiError, "try again; kubectl get --raw /readyz says how the API server is"),
)


@asynccontextmanager
async def connected(context: str | None, *, call_seconds: float) -> AsyncIterator[KubeClient]:
    """Open a client of an API server that answers; each call may take ``call_seconds``.

    A server that is busy is asked again for some seconds. An error of the API server in the block becomes a
    CommandError: one sentence that ends with advice. If the API server does not answer a first short request, the
    command gives up after a few seconds.
    """
    instruments = Instruments(CollectorRegistry())
    try:
        async with KubeClient.connect(
            instruments=instruments,
            timeout_seconds=call_seconds,
            context=context,
            patience_seconds=_BUSY_SECONDS,
        ) as client:
            await client.greet()
            yield client
    except (ApiError, ConfigurationError) as error:
        raise CommandError(failure_message(error)) from error


def failure_message(error: ApiError | ConfigurationError) -> str:
    """Return what keeps a command from the cluster, and what to do."""
    return printable(f"the cluster cannot be read: {error}; {advice(error)}")


def advice(error: BaseException | None) -> str:
    """Return what to do about an error on the way to the API server; an unknown error counts as no answer."""
    return next((words for kind, words in _ADVICE if isinstance(error, kind)), dict(_ADVICE)[Unreachable])
