"""The price of work: kinds, currencies, meter, clock, FLOPs. Knows nothing of training."""
