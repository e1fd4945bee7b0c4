"""The standing suite of measurements, and the check against a baseline. Standard library only."""
