"""One module per figure, named like the figure: a literal tuple `INPUTS` and `draw(inputs, look)`."""
