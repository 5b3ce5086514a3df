"""One module per model variant. A module registers its architecture when it is imported, and does not import torch."""
