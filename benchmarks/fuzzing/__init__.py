"""What `fuzz.py` draws, and what it compares with."""
