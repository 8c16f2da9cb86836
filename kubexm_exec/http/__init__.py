"""The one way to speak HTTP: redirects, whom headers are shown to, limits of time and size, resuming.

The rules (``messages``, ``redirects``, ``ranges``, ``attempts``) are plain functions: the control node's own client and
the tools on a host follow the same ones. The client loads urllib3 (80 ms): it is imported where a request is sent.
"""
