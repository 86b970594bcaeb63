"""Published, measured runs: the table, its units, and what each row says in our settings.

`runs.csv` has one row a figure, with its source; it is not changed to fit. `rows` reads it, or any file with its
columns; `units` says how many bytes a figure is and which counter it is of; `models` and `settings` say what was run,
or why that cannot be said in the settings that there are.
"""
