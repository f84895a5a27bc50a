//! Drawings, written by hand: bars, curves and a line over a logarithmic axis.

use std::fmt::Write as _;

/// Colours of the policies, in order; readable on white and on black.
const COLOURS: [&str; 9] =
    ["#8c8c8c", "#b39ddb", "#64b5f6", "#4db6ac", "#aed581", "#ffb74d", "#e53935", "#3949ab", "#00897b"];

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 64.0;

/// One group of bars, one value for each series.
#[derive(Clone, Debug)]
pub struct Group {
    /// Under the bars.
    pub name: String,
    /// In the order of the series.
    pub values: Vec<f64>,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In the legend.
    pub name: String,
    /// Points, x and y.
    pub points: Vec<(f64, f64)>,
}

/// How an axis runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Axis {
    /// Smallest value.
    pub from: f64,
    /// Largest value.
    pub to: f64,
    /// Whether equal steps are equal factors.
    pub logarithmic: bool,
}

impl Axis {
    /// Where `value` is, 0 to 1.
    fn place(self, value: f64) -> f64 {
        let value = value.clamp(self.from, self.to);
        if self.logarithmic {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    fn ticks(self) -> Vec<f64> {
        if !self.logarithmic {
            return (0..=5).map(|step| self.from + (self.to - self.from) * f64::from(step) / 5.0).collect();
        }
        let mut ticks = Vec::new();
        let mut tick = 10_f64.powf(self.from.log10().ceil());
        while tick <= self.to * 1.0001 {
            ticks.push(tick);
            tick *= 10.0;
        }
        ticks
    }
}

/// Bars of every series in every group.
pub fn bars(title: &str, unit: &str, series: &[&str], groups: &[Group], axis: Axis) -> String {
    let height = 300.0;
    let mut out = begin(title, series, height + 130.0);
    scale(&mut out, unit, axis, height);
    let room = (WIDTH - LEFT - 20.0) / groups.len().max(1) as f64;
    let bar = room * 0.86 / series.len().max(1) as f64;
    for (number, group) in groups.iter().enumerate() {
        let left = LEFT + room * (number as f64 + 0.07);
        for (at, value) in group.values.iter().enumerate() {
            let high = height * axis.place(*value);
            let _ = writeln!(
                out,
                r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" fill="{}"><title>{} {}: {}</title></rect>"#,
                left + bar * at as f64,
                TOP + height - high,
                bar * 0.92,
                high.max(0.5),
                colour(at),
                escaped(&group.name),
                escaped(series.get(at).copied().unwrap_or_default()),
                number_text(*value)
            );
        }
        text(&mut out, left + room * 0.43, TOP + height + 18.0, "middle", &group.name);
    }
    out.push_str("</svg>\n");
    out
}

/// Curves over a common field.
pub fn curves(title: &str, units: (&str, &str), curves: &[Curve], across: Axis, up: Axis) -> String {
    let height = 320.0;
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    let mut out = begin(title, &names, height + 130.0);
    scale(&mut out, units.1, up, height);
    let width = WIDTH - LEFT - 30.0;
    for tick in across.ticks() {
        let x = LEFT + width * across.place(tick);
        let _ = writeln!(
            out,
            r#"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{:.1}" stroke="currentColor" stroke-opacity="0.12"/>"#,
            TOP + height
        );
        text(&mut out, x, TOP + height + 18.0, "middle", &number_text(tick));
    }
    text(&mut out, LEFT + width / 2.0, TOP + height + 38.0, "middle", units.0);
    for (number, curve) in curves.iter().enumerate() {
        let points: Vec<String> = curve
            .points
            .iter()
            .map(|(x, y)| {
                format!("{:.1},{:.1}", LEFT + width * across.place(*x), TOP + height * (1.0 - up.place(*y)))
            })
            .collect();
        let _ = writeln!(
            out,
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>"#,
            points.join(" "),
            colour(number)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn begin(title: &str, legend: &[&str], height: f64) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" color="#444" fill="currentColor">
<rect width="100%" height="100%" fill="#fff"/>"##
    );
    let _ = writeln!(out, r#"<text x="{LEFT}" y="20" font-size="15">{}</text>"#, escaped(title));
    let mut x = LEFT;
    for (number, name) in legend.iter().enumerate() {
        let _ =
            writeln!(out, r#"<rect x="{x:.0}" y="34" width="10" height="10" fill="{}"/>"#, colour(number));
        text(&mut out, x + 14.0, 43.0, "start", name);
        x += 28.0 + 6.4 * name.len() as f64;
    }
    out
}

/// The upright axis with its lines.
fn scale(out: &mut String, unit: &str, axis: Axis, height: f64) {
    for tick in axis.ticks() {
        let y = TOP + height * (1.0 - axis.place(tick));
        let _ = writeln!(
            out,
            r#"<line x1="{LEFT}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="currentColor" stroke-opacity="0.2"/>"#,
            WIDTH - 20.0
        );
        text(out, LEFT - 6.0, y + 4.0, "end", &number_text(tick));
    }
    text(out, LEFT - 6.0, TOP - 8.0, "end", unit);
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(words));
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

fn number_text(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{}", (value * 10.0).round() / 10.0),
        _ => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_axis() {
        let linear = Axis { from: 0.0, to: 10.0, logarithmic: false };
        let logarithmic = Axis { from: 0.01, to: 100.0, logarithmic: true };
        assert!((linear.place(2.5) - 0.25).abs() < 1e-9);
        assert!((logarithmic.place(1.0) - 0.5).abs() < 1e-9);
        assert!((logarithmic.place(0.0) - 0.0).abs() < 1e-9, "below the axis is its begin");
        assert_eq!(logarithmic.ticks().len(), 5);
    }

    #[test]
    fn a_drawing_has_every_value_and_no_raw_text() {
        let axis = Axis { from: 0.0, to: 100.0, logarithmic: false };
        let groups = [Group { name: "a<b".into(), values: vec![10.0, 20.0] }];
        let drawing = bars("t & u", "%", &["one", "two"], &groups, axis);
        assert_eq!(drawing.matches("<title>").count(), 2);
        assert!(drawing.contains("a&lt;b") && drawing.contains("t &amp; u") && !drawing.contains("a<b"));
        let points = vec![(1.0, 2.0), (3.0, 4.0)];
        let drawing = curves("t", ("x", "y"), &[Curve { name: "c".into(), points }], axis, axis);
        assert_eq!(drawing.matches("<polyline").count(), 1);
        assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"));
    }
}
