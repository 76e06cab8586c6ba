"""The command `relabel`: one file a verb, no logic of its own."""
