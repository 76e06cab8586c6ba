"""The command `relabel`: one file per verb, options made from the parameter models, no logic."""
