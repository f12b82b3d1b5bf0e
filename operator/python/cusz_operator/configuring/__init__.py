"""Configuration files: making them, proposing bounds for them, and checking the result (`cusz check`)."""
