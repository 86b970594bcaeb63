"""Readings of a ledger, one file each. A view takes a ledger and gives text; it calculates nothing anew."""
