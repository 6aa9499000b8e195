"""Risk control: what can be promised about a finished policy, from samples that did not choose it."""
