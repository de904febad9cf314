"""The link's frames, as both of its sides read and write them."""
