"""What a run is about, as pure data: the graph, results, events and ids."""
