//! Processor time of this process by what its threads are called.

use anyhow::Context as _;

/// Ticks of the clock that `/proc` counts in; Linux shows 100 a second on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds that threads whose name begins with `name` have used so far, in user and in system mode.
///
/// # Errors
/// `/proc` cannot be read.
pub fn seconds_of(name: &str) -> anyhow::Result<f64> {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        let Ok(line) = std::fs::read_to_string(task?.path().join("stat")) else { continue };
        let (called, used) = read(&line).context("no such line as in /proc")?;
        if called.starts_with(name) {
            ticks += used;
        }
    }
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// A thread's name and its ticks.
fn read(line: &str) -> Option<(&str, u64)> {
    // A name may have spaces and braces in it.
    let (start, end) = (line.find('(')?, line.rfind(')')?);
    let numbers: Vec<&str> = line.get(end + 1..)?.split_ascii_whitespace().collect();
    // Fields 14 and 15 of the line; the list begins with field 3.
    let (user, system) = (numbers.get(11)?.parse::<u64>().ok()?, numbers.get(12)?.parse::<u64>().ok()?);
    Some((line.get(start + 1..end)?, user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_braces_are_read() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194304 1 0 0 0 31 11 0 0 20 0 1 0 5 1 1 1";
        assert_eq!(read(line), Some(("a) b", 42)));
        assert_eq!(read("7 nothing"), None);
    }
}
