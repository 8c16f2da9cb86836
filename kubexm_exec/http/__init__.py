"""The only HTTP implementation: redirects, which server gets which headers, limits of time and size, resuming.

The rules (``messages``, ``redirects``, ``ranges``, ``attempts``) are plain functions, which the client of the control
node and the tools on a host share. The client loads urllib3 (80 ms): it is imported where a request is sent.
"""
