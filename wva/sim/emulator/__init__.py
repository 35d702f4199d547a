"""One vLLM replica without a GPU: the fleet's engine in real time, behind vLLM's HTTP face (``wva emulator``).

``openai`` is what goes over the wire, ``replica`` the engine tied to a clock, ``server`` the routes.
"""
