//! The metrics of prefill and decode at two endpoints: two under kthena's names, and ours beside them.

use super::{DURATION, Family, Kind};

families! {
    /// Prefill phase.
    PREFILL_DURATION = "kthena_router_request_prefill_duration_seconds", Histogram,
        &["model", "path", "status_code"], DURATION,
        "Seconds from sending a prompt to its prefill endpoint to the end of that answer; the status is the endpoint's own, else what it means for the client.";
    /// Decode phase.
    DECODE_DURATION = "kthena_router_request_decode_duration_seconds", Histogram,
        &["model", "path", "status_code"], DURATION,
        "Seconds from sending a request to its decode endpoint to the end of that answer; only where another endpoint computed the prompt.";
    /// Prefill given to a decode endpoint.
    PD_FALLBACK = "kvasir_pd_fallback_total", Counter, &["model", "reason"], &[],
        "Requests that a decode endpoint got whole (`--pd-fallback`) by reason: no_pair, prefill_failed, no_transfer_params, and several_prompts in any case.";
}
