"""What others build for the same purpose, set up so that it can be measured beside Tarry."""
