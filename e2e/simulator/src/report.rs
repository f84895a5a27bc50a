//! The report in Markdown, with its drawings beside it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::calibrate;
use crate::experiment::{Experiment, Nature, Row};
use crate::gate;
use crate::outcome::Figures;
use crate::presets::Preset;
use crate::scale::FleetCost;
use crate::svg::{self, Axis, Curve, Group};
use crate::table::shown;

/// The folder of the drawings, beside the report.
const DRAWINGS: &str = "simulation";

/// All that a report tells.
#[derive(Clone, Copy, Debug)]
pub struct Findings<'a> {
    /// What was run.
    pub experiment: &'a Experiment,
    /// On which engine.
    pub preset: &'a Preset,
    /// The workloads.
    pub natures: &'a [Nature],
    /// Every policy on every workload.
    pub rows: &'a [Row],
    /// Fleets of other sizes.
    pub fleets: &'a [FleetCost],
    /// The command line that made it.
    pub command: &'a str,
}

/// Writes `simulation.md` into `folder`, and its drawings into a folder below.
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, findings: &Findings<'_>) -> anyhow::Result<()> {
    let drawings = folder.join(DRAWINGS);
    std::fs::create_dir_all(&drawings)?;
    for (name, drawing) in draw(findings) {
        std::fs::write(drawings.join(name), drawing)?;
    }
    std::fs::write(folder.join("simulation.md"), text(findings))?;
    Ok(())
}

fn draw(findings: &Findings<'_>) -> Vec<(String, String)> {
    let percent = Axis { from: 0.0, to: 100.0, logarithmic: false };
    let mut all = vec![
        (
            "hit-rate.svg".to_owned(),
            bars(findings, "Hit rate", "%", percent, |figures| 100.0 * figures.hit_rate),
        ),
        (
            "ttft-p90.svg".to_owned(),
            bars(findings, "Time to first token, 90th percentile", "ms", times(findings), |figures| {
                1000.0 * figures.ttft_p90
            }),
        ),
        (
            "within-slo.svg".to_owned(),
            bars(
                findings,
                &format!("First token within {} s", findings.experiment.slo),
                "%",
                percent,
                |figures| 100.0 * figures.within_slo,
            ),
        ),
    ];
    for nature in findings.natures {
        let curves: Vec<Curve> = findings
            .rows
            .iter()
            .filter(|row| row.workload == nature.workload)
            .map(|row| Curve { name: row.policy.name().to_owned(), points: curve(row) })
            .collect();
        let title = format!("{}: share of requests with their first token by then", nature.workload.name());
        let drawing = svg::curves(&title, ("ms", "%"), &curves, times(findings), percent);
        all.push((format!("ttft-{}.svg", nature.workload.name()), drawing));
    }
    if findings.fleets.len() > 1 {
        all.push(("decision-cost.svg".to_owned(), decision_cost(findings.fleets)));
    }
    all
}

/// From the fastest to the slowest of all runs, ms.
fn times(findings: &Findings<'_>) -> Axis {
    let all = || findings.rows.iter().flat_map(|row| &row.runs);
    let from = all().filter_map(|run| run.ttft_curve.first()).copied().fold(f64::INFINITY, f64::min);
    let to = all().map(|run| run.ttft_p99).fold(0.0, f64::max);
    let decade = |value: f64, round: fn(f64) -> f64| 10_f64.powf(round((1000.0 * value).log10()));
    let (from, to) = (decade(from.max(1e-4), f64::floor), decade(to.max(1e-3), f64::ceil));
    Axis { from, to: to.max(from * 10.0), logarithmic: true }
}

/// Mean over the seeds, percentile by percentile; ms and percent.
fn curve(row: &Row) -> Vec<(f64, f64)> {
    (0..100)
        .map(|at| {
            let mean = row.over_seeds(|run| run.ttft_curve.get(at).copied().unwrap_or_default()).mean;
            (1000.0 * mean, at as f64 + 1.0)
        })
        .collect()
}

fn bars(
    findings: &Findings<'_>,
    title: &str,
    unit: &str,
    axis: Axis,
    of: impl Fn(&Figures) -> f64,
) -> String {
    let series: Vec<&str> = findings.experiment.policies.iter().map(|policy| policy.name()).collect();
    let groups: Vec<Group> = findings
        .natures
        .iter()
        .map(|nature| Group {
            name: nature.workload.name().to_owned(),
            values: findings
                .rows
                .iter()
                .filter(|row| row.workload == nature.workload)
                .map(|row| row.over_seeds(&of).mean)
                .collect(),
        })
        .collect();
    svg::bars(title, unit, &series, &groups, axis)
}

fn decision_cost(fleets: &[FleetCost]) -> String {
    let points = |of: fn(&FleetCost) -> f64| {
        fleets.iter().map(|fleet| (fleet.pods as f64, 1e6 * of(fleet))).collect::<Vec<_>>()
    };
    let curves = [
        Curve { name: "median".into(), points: points(|fleet| fleet.decision_p50) },
        Curve { name: "99th percentile".into(), points: points(|fleet| fleet.decision_p99) },
    ];
    let pods = Axis { from: 1.0, to: 10_000.0, logarithmic: true };
    let cost = Axis { from: 1.0, to: 100_000.0, logarithmic: true };
    svg::curves("Gathering and deciding, by the machine's clock", ("pods", "us"), &curves, pods, cost)
}

fn text(findings: &Findings<'_>) -> String {
    let mut out = String::from("# Policies on a simulated fleet\n\n");
    let experiment = findings.experiment;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Made on {} by `{}`.\n\n{} pods, {} router replicas, {} requests a run, the first {:.0} % of them not counted, \
         seeds {:?}; KV demand {:.0} %, utilisation {:.0} %.\n",
        today(),
        findings.command,
        experiment.pods,
        experiment.replicas,
        experiment.requests,
        100.0 * experiment.warm_up,
        experiment.seeds,
        100.0 * experiment.kv_demand,
        100.0 * experiment.utilisation
    );
    out.push_str(ABOUT);
    engine(&mut out, findings);
    out.push_str(
        "\n## Figures\n\n![Hit rate](simulation/hit-rate.svg)\n\n![TTFT p90](simulation/ttft-p90.svg)\n\n",
    );
    out.push_str("![Within the limit](simulation/within-slo.svg)\n");
    for nature in findings.natures {
        workload(&mut out, findings, nature);
    }
    gate_section(&mut out, findings);
    fleets(&mut out, findings.fleets);
    out
}

const ABOUT: &str = "\
The router's own code places every request: the scheduler with its producers, the block index with its events, and the \
plugins. What is simulated is around it: time, clients, engines. Routers see what routers see: events of caches 5 ms \
late, scrapes up to a second old, each replica its own requests at once and the others' every 100 ms. A request goes to \
a replica by chance; the same requests come at the same times under every policy, but for a turn of a conversation, \
which waits for the answer before it.

An engine has a queue, a batch that is put together anew for every step (running sequences first, prompts in chunks \
within a token budget, waiting ones in order while there is memory), and KV blocks with reuse of whole cached blocks, \
eviction of the longest unused, and preemption. Times to first token come out of that, not out of a formula that a \
scorer knows.

- **KV demand**: tokens worth keeping at one time (shared prefixes, live conversations) over the KV memory of the fleet.
- **Utilisation**: engine time that comes over engine time there is, if everything seen before were reused and 16 \
sequences shared a step. A policy that reuses less has more to do than that.
- **Hit rate**: prompt tokens out of a cache over all prompt tokens, as the engines count them.
- **Spread**: tokens computed by the busiest pod over the mean of all.
- **oracle-soonest** knows every cache, queue and answer, plays each pod's next steps and takes the pod with the soonest \
first token, blind to who comes later. **oracle-reuse** knows the same and takes the pod where most of the prompt is \
cached, among those where the first token comes no later than at the soonest pod plus the time to compute the whole \
prompt. Neither is the best possible placement; each is the best for its own wish, one request at a time.
- The other policies run in this implementation, under equal conditions: `least-request`, `prefix-cache`, \
`kvcache-aware` with `least-request` 1:1, and what kthena's chart enables by default.
- ± is the standard deviation over the seeds.
";

fn engine(out: &mut String, findings: &Findings<'_>) {
    let shape = findings.experiment.shape;
    let _ = writeln!(
        out,
        "\n## The engine\n\n`{}`: {}.\n\n| step | prompt token | decoding sequence | token of its context | KV blocks | \
         tokens in a step |\n|---|---|---|---|---|---|\n| {:.1} ms | {:.1} us ({:.0} tokens/s) | {:.1} us | {:.2} us \
         | {} of {} | {} |",
        findings.preset.name,
        findings.preset.origin,
        1e3 * shape.rates.step,
        1e6 * shape.rates.prefill_token,
        1.0 / shape.rates.prefill_token,
        1e6 * shape.rates.decode_sequence,
        1e6 * shape.rates.context_token,
        shape.kv_blocks,
        shape.block_size,
        shape.step_tokens
    );
    if let Ok(fit) = calibrate::fit_checked_in()
        && fit.requests > 0
    {
        let _ = writeln!(
            out,
            "\nHow near the engine model comes: fitted to {} requests measured on {}, its time to first token is off by \
             {:.0} % in the median and {:.0} % at the 90th percentile, its total time by {:.0} % and {:.0} %.",
            fit.requests,
            fit.engine,
            100.0 * fit.ttft_error_p50,
            100.0 * fit.ttft_error_p90,
            100.0 * fit.total_error_p50,
            100.0 * fit.total_error_p90
        );
    }
}

fn workload(out: &mut String, findings: &Findings<'_>, nature: &Nature) {
    let _ = writeln!(
        out,
        "\n### {}\n\nKV demand {:.0} %, mean prompt {:.0} tokens, mean answer {:.0}; one boundless cache for everybody \
         would hit {:.1} %.\n\n| policy | hit rate % | TTFT p50 ms | p90 ms | p99 ms | TPOT ms | e2e p50 s | <= {} s % | \
         good/s | spread |\n|---|---|---|---|---|---|---|---|---|---|",
        nature.workload.name(),
        100.0 * nature.kv_demand,
        nature.prompt,
        nature.answer,
        100.0 * nature.ideal_hit_rate,
        findings.experiment.slo
    );
    for row in findings.rows.iter().filter(|row| row.workload == nature.workload) {
        let name = row.policy.name();
        let name = if name == "kvasir-cost" { format!("**{name}**") } else { name.to_owned() };
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            shown(row.over_seeds(|run| 100.0 * run.hit_rate), 1),
            shown(row.over_seeds(|run| 1e3 * run.ttft_p50), 0),
            shown(row.over_seeds(|run| 1e3 * run.ttft_p90), 0),
            shown(row.over_seeds(|run| 1e3 * run.ttft_p99), 0),
            shown(row.over_seeds(|run| 1e3 * run.tpot_p50), 1),
            shown(row.over_seeds(|run| run.e2e_p50), 2),
            shown(row.over_seeds(|run| 100.0 * run.within_slo), 1),
            shown(row.over_seeds(|run| run.goodput), 1),
            shown(row.over_seeds(|run| run.spread), 2),
        );
    }
    let name = nature.workload.name();
    let _ = writeln!(out, "\n![TTFT under {name}](simulation/ttft-{name}.svg)");
}

fn gate_section(out: &mut String, findings: &Findings<'_>) {
    let losses = gate::losses(findings.rows, findings.natures);
    let _ = writeln!(out, "\n## Where it loses\n\n{}", gate::TERMS);
    if losses.is_empty() {
        out.push_str("\nNowhere in this run.\n");
    } else {
        out.push('\n');
    }
    for loss in losses {
        let _ = writeln!(out, "- {loss}");
    }
}

fn fleets(out: &mut String, fleets: &[FleetCost]) {
    if fleets.is_empty() {
        return;
    }
    out.push_str(
        "\n## Large fleets\n\nThe default profile under the mixed workload, one run each; the cost of a decision is \
         wall-clock time of gathering and deciding in the router's code, caches cold and machine busy as it was.\n\n\
         | pods | requests | hit rate % | boundless cache % | decision p50 us | p99 us | of it gathering p50 us | \
         the run took s |\n|---|---|---|---|---|---|---|---|\n",
    );
    for fleet in fleets {
        let _ = writeln!(
            out,
            "| {} | {} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} |",
            fleet.pods,
            fleet.requests,
            100.0 * fleet.hit_rate,
            100.0 * fleet.ideal_hit_rate,
            1e6 * fleet.decision_p50,
            1e6 * fleet.decision_p99,
            1e6 * fleet.gather_p50,
            fleet.took
        );
    }
    if fleets.len() > 1 {
        out.push_str("\n![Decision cost](simulation/decision-cost.svg)\n");
    }
}

/// The date, `2026-11-30`.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = (since.as_secs() / 86_400) as i64;
    // Howard Hinnant's civil-from-days: years begin in March, so that leap days are last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
