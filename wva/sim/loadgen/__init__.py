"""An open-loop load generator for OpenAI-compatible servers (``wva loadgen``).

``schedule`` says when requests are sent, ``client`` sends one and measures it, ``run`` sends all of them, each at its
time, ``report`` adds up the results.
"""
