"""The scorecard: the results of every policy in every scenario, as tables and as an HTML page.

- ``suites``      the scenarios by name, and which of them a suite has
- ``learning``    scenarios in which there is something to learn
- ``sources``     the files of the program that a run depends on
- ``runs``        each scenario with each policy and each seed once, over all cores; finished runs are kept in files
- ``statistics``  means over seeds with their confidence intervals
- ``card``        the summary: figures, the tuned member of each family, winners
- ``verdicts``    where one policy wins and loses, to whom and why
- ``tables``      the summary's tables, every figure as it is shown
- ``markdown``    two pages to read, from the tables
- ``tables_page`` the tables as one HTML file
- ``page``        the summary as one HTML file with plots
"""
