"""Stage audit: the plan before a run, the effective configuration, verification after it, and a bundle to publish."""
