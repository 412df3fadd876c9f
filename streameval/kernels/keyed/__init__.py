"""Loops over keyed rows: hot keys, and packed tables."""
