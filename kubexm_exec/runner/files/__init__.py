"""Files, folders, links, archives and transfers on a host."""
