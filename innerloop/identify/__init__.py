"""Which algorithm does a transformer run? Its layers × candidate algorithms → a verdict."""
