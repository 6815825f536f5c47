"""Graphs, features, masks, sparse products and random draws: the definition of what is computed."""
