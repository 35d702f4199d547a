"""An open-loop load generator for OpenAI-compatible servers (``wva loadgen``).

``schedule`` says when requests are sent, ``client`` sends one and measures it, ``run`` does both at once, ``report``
adds up what came of it.
"""
