"""What others' autoscalers do, of their own code: ``tox -e rivals``."""
