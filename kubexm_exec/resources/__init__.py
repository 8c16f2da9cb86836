"""Files from elsewhere: found in a bundle or the cache, fetched once, verified, and handed to whoever asks."""

from __future__ import annotations
