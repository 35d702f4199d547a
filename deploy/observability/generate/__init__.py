"""Makes ``prometheusrule.yaml`` of ``rules.yaml``, and the dashboards of their descriptions in this folder.

``python -m deploy.observability.generate`` writes them; a test fails while they are not current.

- ``grafana``   panels and pages as Grafana wants them, with a layout
- ``queries``   expressions that several dashboards share
- ``fleet``, ``model``, ``decision``, ``trust``   one dashboard each
- ``__main__``  what is written where
"""
