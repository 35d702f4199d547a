"""Scale from zero: finds models at zero, reads how many requests wait for them at gateways, and starts variants."""
