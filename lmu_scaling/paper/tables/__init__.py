"""One module per table, named like the table: a literal tuple `INPUTS` and `rows(inputs, look)`."""
