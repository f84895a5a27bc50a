//! What is behind us: engine kinds, their metrics, health and discovery.
