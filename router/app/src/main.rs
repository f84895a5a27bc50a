//! The binary `kvasir`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    quiet_encoder_threads();
    kvasir::cli::run(std::env::args_os().collect())
}

/// Keeps the fast encoder from starting spinning threads of its own beside our pool (decision D13).
#[expect(
    unsafe_code,
    reason = "setting a variable is unsound beside other threads; none has been started yet"
)]
fn quiet_encoder_threads() {
    for (name, value) in [("FASTOKENS_BPE_THREADS", "1"), ("FASTOKENS_SPIN_US", "0")] {
        if std::env::var_os(name).is_none() {
            // SAFETY: this is the first thing `main` does; the process has one thread.
            unsafe { std::env::set_var(name, value) };
        }
    }
}
