"""Traffic for the physics: when requests arrive, how long they are, and what they have in common.

- ``requests``  ``Traffic``: the requests of one model over a time, as columns
"""
