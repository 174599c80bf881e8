"""How it learns: one file a method, one small contract."""
