"""Few seeds of a comparison against fifty: how often they name the wrong winner."""
