"""What really ran against what WVA in shadow mode would have run, day by day: ``wva report --shadow``.

``days`` has the numbers and their sums. ``history`` reads them from Prometheus, ``recorded`` from recordings of cycles.
``text`` and ``page`` show them. Days are those of UTC.
"""
