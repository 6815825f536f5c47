"""Tickets in use."""
