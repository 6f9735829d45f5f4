"""One attempt of one cell: loop, milestones, losses, checkpoint, evaluation."""
