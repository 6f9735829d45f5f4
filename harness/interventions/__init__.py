"""What makes arms differ, and nothing else: one small file per family, one registry."""
