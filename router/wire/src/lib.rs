//! Bodies in and out: the pass-through JSON scan, SSE, usage.
