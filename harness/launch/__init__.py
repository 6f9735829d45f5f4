"""The sweep: cells in, processes out; leases, progress, states."""
