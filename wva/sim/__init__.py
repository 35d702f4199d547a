"""The embedded world: everything the controller talks to, in one process and in virtual time."""
