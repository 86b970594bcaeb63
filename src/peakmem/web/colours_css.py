"""The kinds' colours as CSS, from the one table of views/colours.py."""

from __future__ import annotations

from peakmem.views.colours import COLOURS

BLACK, WHITE = "#000000", "#ffffff"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(colour: str) -> str:
    """Black or white, whichever is read better on this colour."""
    return max((BLACK, WHITE), key=lambda ink: contrast(colour, ink))


def css() -> str:
    """Custom properties in both themes, a class for each kind, and one kind dimming the others."""
    def theme(dark: bool) -> str:
        shades = {kind: look.dark if dark else look.light for kind, look in COLOURS.items()}
        return "".join(f"--{kind}:{shade};--on-{kind}:{ink_on(shade)};" for kind, shade in shades.items())

    classes = "".join(f".{kind}{{--kind:var(--{kind});--on:var(--on-{kind})}}\n" for kind in COLOURS)
    dimmed = "".join(f':root[data-only="{kind}"] :is(.seg,.on,.strip,.rule):not(.{kind}){{opacity:.2}}\n'
                     for kind in COLOURS)
    return (f":root{{{theme(False)}}}\n@media (prefers-color-scheme:dark){{:root:not([data-theme=light])"
            f"{{{theme(True)}}}}}\n:root[data-theme=dark]{{{theme(True)}}}\n"
            f"@media print{{:root:root:root{{{theme(False)}}}}}\n{classes}{dimmed}")
