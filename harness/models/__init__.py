"""Where a policy comes from: a preset warm-started here, a folder saved by transformers, the scripted instrument."""
