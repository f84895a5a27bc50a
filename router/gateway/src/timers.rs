//! Which timers Pingora's time-outs run on.

use std::time::Duration;

use pingora_timeout::fast_timeout::set_fast_timeout_to_tokio_threshold;

/// Time-outs of a second more than this, counted in whole seconds, run on Tokio's timers.
///
/// Pingora's own timers, one for each thread and 10 ms in which a time-out would end, are kept until then, though what
/// they guarded ended long before. Under the default of ten minutes to the first byte those are 60,000 a thread, 9 MB, and
/// they grow for ten minutes. Tokio's leave with what they guard. With this, Pingora keeps its own for those below a second,
/// 100 a thread.
const LONGEST_KEPT: Duration = Duration::ZERO;

/// Lets long time-outs be forgotten when what they guard is over. Holds for the whole process; may be called again.
pub(crate) fn forget_with_what_they_guard() {
    set_fast_timeout_to_tokio_threshold(Some(LONGEST_KEPT));
}
