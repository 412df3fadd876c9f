"""Loops over keyed rows."""
