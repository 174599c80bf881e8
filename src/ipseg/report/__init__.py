"""What people look at: tables, plots, overlays and one self-contained page. Reads results only; no torch here."""
