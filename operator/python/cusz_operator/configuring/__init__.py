"""Configuration files: making them, proposing bounds for them, and checking what comes of them (`cusz check`)."""
