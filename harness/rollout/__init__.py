"""Sampling: requests in, samples out; engines, and the meter in front of them."""
