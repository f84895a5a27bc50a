//! Figures of a test as a markdown table: printed, and appended to a file where one is named.

use std::fmt::Write as _;
use std::io::Write as _;

/// Names the file.
const VARIABLE: &str = "KVASIR_FAULT_REPORT";

/// One table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    text: String,
}

impl Report {
    /// A table under a title. Short rows are filled up with empty cells.
    pub fn table(title: &str, header: &[&str], rows: &[Vec<String>]) -> Self {
        let mut text =
            format!("### {title}\n\n| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
        for row in rows {
            text.push('|');
            for column in 0..header.len() {
                let cell = row.get(column).map_or("", String::as_str);
                let _ = write!(text, " {} |", cell.replace('|', "\\|").replace('\n', " "));
            }
            text.push('\n');
        }
        Self { text }
    }

    /// The table.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Prints the table, and appends it to the file that `KVASIR_FAULT_REPORT` names.
    ///
    /// # Errors
    /// When the file cannot be written.
    #[expect(clippy::print_stdout, reason = "figures are what the test is run for")]
    #[expect(clippy::disallowed_methods, reason = "where a test's figures go is no setting of the router")]
    pub fn publish(&self) -> std::io::Result<()> {
        println!("{}", self.text);
        match std::env::var(VARIABLE) {
            Ok(path) if !path.is_empty() => {
                let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
                // One write for each table: tests run side by side.
                file.write_all(format!("{}\n", self.text).as_bytes())
            }
            _ => Ok(()),
        }
    }
}

/// The figures of one fault.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// Requests sent.
    pub requests: usize,
    /// Those without a good answer.
    pub lost: usize,
    /// What each of them waited for, in milliseconds, beyond its own work.
    pub waited_ms: Vec<f64>,
}

impl Figures {
    /// The middle one of the waits.
    pub fn median_ms(&self) -> f64 {
        let mut sorted = self.waited_ms.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The longest wait.
    pub fn longest_ms(&self) -> f64 {
        self.waited_ms.iter().copied().fold(0.0, f64::max)
    }

    /// Requests, lost, and both waits, as cells of a table.
    pub fn cells(&self) -> [String; 4] {
        [
            self.requests.to_string(),
            self.lost.to_string(),
            format!("{:.1}", self.median_ms()),
            format!("{:.1}", self.longest_ms()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let rows = [vec!["a|b".to_owned(), "1".to_owned()], vec!["c".to_owned()]];
        let text = "### Title\n\n| x | y |\n|---|---|\n| a\\|b | 1 |\n| c |  |\n";
        assert_eq!(Report::table("Title", &["x", "y"], &rows).text(), text);
    }

    #[test]
    fn figures_are_the_median_and_the_longest() {
        let figures = Figures { requests: 3, lost: 1, waited_ms: vec![3.0, 0.25, 1.0] };
        assert_eq!(figures.cells(), ["3", "1", "1.0", "3.0"]);
        assert_eq!(Figures::default().cells(), ["0", "0", "0.0", "0.0"]);
    }
}
