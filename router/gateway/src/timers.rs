//! Which timers Pingora's time-outs run on.

use std::time::Duration;

use pingora_timeout::fast_timeout::set_fast_timeout_to_tokio_threshold;

/// Time-outs of more whole seconds than this run on Tokio's timers: those of a second and more.
///
/// Pingora's own timers, one for each thread and 10 ms in which a time-out would end, are kept until then, though what
/// they guarded ended long before: under the default of ten minutes to the first byte up to 60,000 a thread, 9 MB, and
/// memory grows for ten minutes. Tokio's leave with what they guard. Of Pingora's own stay those below a second, 100 a
/// thread, and its plain sleeps: 4 s after each use of a pooled connection, and the keep-alive time after each pause of an
/// HTTP/2 client.
const LONGEST_KEPT: Duration = Duration::ZERO;

/// Lets long time-outs be forgotten when what they guard is over. Holds for the whole process; may be called again.
pub(crate) fn forget_with_what_they_guard() {
    set_fast_timeout_to_tokio_threshold(Some(LONGEST_KEPT));
}
