//! Prints the metrics reference page.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(kvasir_telemetry::names::reference_page().as_bytes())
}
