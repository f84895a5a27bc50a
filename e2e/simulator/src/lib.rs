//! A simulated fleet, driven by the real scheduler: policies compared on the same arrivals.
