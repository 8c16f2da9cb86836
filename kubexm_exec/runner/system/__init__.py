"""Parts of a host's system: users, services, mounts, kernel, firewall, schedules."""
