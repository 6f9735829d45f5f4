"""Prompt selection: which of an update's candidate prompts an arm trains on."""
