"""What peakmem knows by heart: one row per thing, each with its source. Plain data, loaded when first used."""
