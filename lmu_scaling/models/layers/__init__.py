"""One module per layer: a description without torch, then the torch class.

The description is registered above the module's first import of torch, because the registry loads the file only up
to that line (`lmu_scaling.models`): planning and counting need no torch. The class is found through the description's
`builder` when a network is built; no other file has to be edited to add a layer.
"""
