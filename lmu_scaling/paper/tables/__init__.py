"""One module per table: a literal `INPUTS` and `rows(inputs, look)`; the module's name is the table's."""
