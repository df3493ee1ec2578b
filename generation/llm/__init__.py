"""Language models: their settings, backends and replies."""
