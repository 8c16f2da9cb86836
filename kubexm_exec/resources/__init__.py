"""Files from elsewhere: found in a bundle or the cache, fetched once, verified, and given to steps."""

from __future__ import annotations
