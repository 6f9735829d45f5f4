"""Problems, their pools and their verifiers."""
