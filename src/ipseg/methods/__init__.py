"""The methods: one file each, on one small contract."""
