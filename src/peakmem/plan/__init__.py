"""Questions over many estimates: what fits, what helps, how it grows."""
