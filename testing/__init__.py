"""Problems with known answers, and runs that remember what crossed: for tests and benchmarks, not for users."""
