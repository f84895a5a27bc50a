//! Redis, and the only crate that names it: the block mirror, kthena's layout, the load that replicas share.
