"""Builds systems of accelerators, models, classes and servers from the recording."""

from __future__ import annotations

from tests.golden.original.allocations import Allocation, BestEffort, Options, OriginalLoad, OriginalServer
from tests.golden.original.service import PrefillDecode
from tests.golden.original.system import Accelerator, Profile, ServiceClass, System
from tests.golden.original.targets import OriginalTarget
from tests.golden.vectors import Case


def system_of(rows: Case) -> System:
    """Return a recorded system; a later duplicate replaces an earlier one."""
    options = rows["optimizerData"]["optimizer"]
    known = {policy.value for policy in BestEffort}
    policy = options.get("saturationPolicy", "")
    return System(
        accelerators={
            row["name"]: Accelerator(row["name"], row["type"], row["cost"], row["multiplicity"])
            for row in rows["acceleratorData"]["accelerators"] or []
        },
        profiles={
            (row["name"], row["acc"]): Profile(
                row["name"],
                row["acc"],
                PrefillDecode(**row["decodeParms"], **row["prefillParms"]),
                row["maxBatchSize"],
                row["atTokens"],
                row["accCount"],
            )
            for row in rows["modelData"]["models"] or []
        },
        classes={
            row["name"]: ServiceClass(
                row["name"],
                row["priority"],
                {
                    target["model"]: OriginalTarget(
                        target.get("slo-ttft", 0), target.get("slo-itl", 0), target.get("slo-tps", 0)
                    )
                    for target in row["modelTargets"] or []
                },
            )
            for row in rows["serviceClassData"]["serviceClasses"] or []
        },
        servers={row["name"]: server_of(row) for row in rows["serverData"]["servers"] or []},
        capacity={row["type"]: row["count"] for row in rows["capacityData"]["count"] or []},
        options=Options(
            options["unlimited"],
            BestEffort(policy) if policy in known else BestEffort.NONE,
            delayed=options["delayedBestEffort"],
        ),
    )


def server_of(row: Case) -> OriginalServer:
    """Return a recorded server; its class is Free by default."""
    current, load = row["currentAlloc"], row["currentAlloc"]["load"]
    return OriginalServer(
        row["name"],
        row["class"] or "Free",
        row["model"],
        OriginalLoad(load["arrivalRate"], load["avgInTokens"], load["avgOutTokens"]),
        Allocation(current["accelerator"], current["numReplicas"], current["maxBatch"], cost=current["cost"]),
        row["keepAccelerator"],
        row["minNumReplicas"],
        row["maxBatchSize"],
    )
