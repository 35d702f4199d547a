"""Pure decisions: Snapshot, Memory, Policy and now in; Decisions and Memory out. No I/O, no clock, no logging."""
