"""Graph lottery tickets: a sparse subgraph and a sparse subnetwork that train as well as the dense pair."""

__version__ = "0.1.0"
