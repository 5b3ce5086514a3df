"""The lock of a run is that of lmu_scaling/lock.py. Its name stays here: an edit of the trainer's imports retrains."""

from lmu_scaling.lock import exclusive

__all__ = ["exclusive"]
AFFECTS_RESULTS = False
