"""Registers how long hypothesis searches: quick by default, HYPOTHESIS_PROFILE=thorough for longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadlines and no complaints about slow examples: how busy the machine is must not decide whether a test passes.
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("quick", _untimed, max_examples=50)
settings.register_profile("thorough", _untimed, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
