"""The estimate: interpret a structure once, put numbers in as often as wanted."""
