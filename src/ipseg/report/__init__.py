"""Tables, plots, overlays and one self-contained page. Reads results only, without torch."""
