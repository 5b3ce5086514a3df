"""Verification of finished results, and the bundle to publish them."""
