"""Traffic for the physics: when requests arrive, how long they are, and what they have in common.

- ``requests``  ``Traffic``: the requests of one model over a time, as columns
- ``rates``     rates over time, and how they are put together
- ``arrivals``  arrival times of a rate: Poisson, or in clumps
- ``lengths``   lengths of prompts and answers
- ``assembly``  ``Traffic`` from arrival times, lengths and prefixes
- ``shapes``    traffic of plain shapes: sine, step, bursts, ramps, shifts, the upstream benchmarks
- ``streams``   random streams by seed and purpose
"""
