"""Traffic for the simulated engines: when requests arrive, how long they are, and what they have in common.

- ``requests``    ``Traffic``: the requests of one model over a time, as columns
- ``kinds``       all kinds of traffic by name
- ``shapes``      traffic of plain shapes: sine, step, bursts, ramps, shifts, the upstream benchmarks
- ``traces``      traffic like that of published traces: Azure, BurstGPT, Mooncake
- ``csv_file``    a user's own requests from a CSV file, and traffic written to one
- ``series``      traffic with the rates and mean lengths of a time series
- ``published``   the published statistics of those traces
- ``acceptance``  how near the generated traffic is to those statistics
- ``statistics``  the statistics of traffic

Traffic is made from:

- ``rates``       rates over time, and how they are combined
- ``arrivals``    arrival times of a rate: Poisson, or in clumps
- ``lengths``     lengths of prompts and answers
- ``prefixes``    templates and sessions: what prompts have in common
- ``assembly``    ``Traffic`` from arrival times, lengths and prefixes; merging of several
- ``streams``     random streams by seed and purpose
"""
