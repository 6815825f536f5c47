"""Ranking, quotas, sampling: which elements go."""
