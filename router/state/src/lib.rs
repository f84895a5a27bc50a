//! What we know now: the routing table and the endpoint registry, swapped whole.
