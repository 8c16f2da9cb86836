"""A third party's step and executor for kubexm."""
