"""Time, errors, numeric types and settings, which every other package uses. Imports no other package."""
