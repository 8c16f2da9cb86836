"""Packages: what is asked for, what is there, and what is to be done."""

from __future__ import annotations

from kubexm_exec.runner.packages import Ask, Goal, ManagerName, Move, Plan, Survey
from kubexm_exec.runner.packages.base import Manager

__all__ = ["Ask", "Goal", "Manager", "ManagerName", "Move", "Plan", "Survey"]
