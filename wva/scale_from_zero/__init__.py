"""Scale from zero: what rests, which requests wait for it at the gateways, and the start of what they wait for."""
