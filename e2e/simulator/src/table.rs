//! The terminal's table.

use std::fmt::Write as _;

use crate::experiment::{Nature, Row};
use crate::outcome::Spread;

/// One table for each workload, a row for each policy.
pub fn table(rows: &[Row], natures: &[Nature], slo: f64) -> String {
    let mut out = String::new();
    for nature in natures {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{}: KV demand {:.0} %, mean prompt {:.0} and answer {:.0} tokens, one boundless cache would hit {:.1} %",
            nature.workload.name(),
            100.0 * nature.kv_demand,
            nature.prompt,
            nature.answer,
            100.0 * nature.ideal_hit_rate
        );
        let _ = writeln!(
            out,
            "  {:<15} {:>13} {:>17} {:>17} {:>9} {:>8} {:>8} {:>13} {:>9} {:>11}",
            "policy",
            "hit rate %",
            "TTFT p50 ms",
            "p90 ms",
            "p99 ms",
            "TPOT ms",
            "e2e s",
            format!("<= {slo} s %"),
            "good/s",
            "spread"
        );
        for row in rows.iter().filter(|row| row.workload == nature.workload) {
            let _ = writeln!(out, "  {}", line(row));
        }
        out.push('\n');
    }
    out
}

fn line(row: &Row) -> String {
    format!(
        "{:<15} {:>13} {:>17} {:>17} {:>9} {:>8} {:>8} {:>13} {:>9} {:>11}",
        row.policy.name(),
        shown(row.over_seeds(|figures| 100.0 * figures.hit_rate), 1),
        shown(row.over_seeds(|figures| 1000.0 * figures.ttft_p50), 0),
        shown(row.over_seeds(|figures| 1000.0 * figures.ttft_p90), 0),
        format!("{:.0}", row.over_seeds(|figures| 1000.0 * figures.ttft_p99).mean),
        format!("{:.1}", row.over_seeds(|figures| 1000.0 * figures.tpot_p50).mean),
        format!("{:.2}", row.over_seeds(|figures| figures.e2e_p50).mean),
        shown(row.over_seeds(|figures| 100.0 * figures.within_slo), 1),
        format!("{:.1}", row.over_seeds(|figures| figures.goodput).mean),
        shown(row.over_seeds(|figures| figures.spread), 2),
    )
}

/// Mean and deviation, short.
pub fn shown(value: Spread, digits: usize) -> String {
    if value.deviation > 0.0 {
        format!("{:.digits$}±{:.digits$}", value.mean, value.deviation)
    } else {
        format!("{:.digits$}", value.mean)
    }
}
