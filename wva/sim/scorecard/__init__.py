"""The scorecard: every policy in every scenario, and what came of it, as tables and as a page to look at.

- ``suites``      the scenarios by name, and which of them a suite has
- ``runs``        each scenario with each policy and each seed once, over all cores; finished runs are kept in files
- ``statistics``  means over seeds with their confidence intervals
- ``card``        the summary: figures, the tuned member of each family, winners
- ``verdicts``    where one policy wins and loses, to whom and why
- ``markdown``    the summary as Markdown
- ``page``        the summary as one HTML file with plots
"""
