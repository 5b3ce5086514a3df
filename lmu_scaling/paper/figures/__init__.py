"""One module per figure: a literal `INPUTS` and `draw(inputs, look)`; the module's name is the figure's."""
