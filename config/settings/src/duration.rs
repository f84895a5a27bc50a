//! Durations as Go writes them: `300ms`, `1h30m`, `0`.

use std::time::Duration;

/// Units with their nanoseconds, longest first. Both micro signs of Unicode are taken, as Go does.
const UNITS: [(&str, u128); 8] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ns", 1),
];

/// Go keeps a duration in a signed 64-bit count of nanoseconds, about 292 years.
const LONGEST_NANOS: u128 = i64::MAX as u128;

/// Digits of a fraction that are looked at; finer than a nanosecond of an hour.
const FRACTION_DIGITS: usize = 15;

/// Reads a duration. A bare `0` is allowed; any other number needs a unit.
///
/// # Errors
/// A sentence that names what is wrong and the fix.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') && text != "-0" {
        return Err(format!("{text:?} is negative; a duration is 0 or longer"));
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(format!("{text:?} is no duration; write a number with a unit, such as 90s or 1h30m"));
    }
    let mut nanos: u128 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (part, tail) = parse_part(text, rest)?;
        nanos += part;
        if nanos > LONGEST_NANOS {
            return Err(format!("{text:?} is too long; the longest duration is about 292 years"));
        }
        rest = tail;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    let below = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Ok(Duration::new(seconds, below))
}

/// One number with its unit, in nanoseconds, and what follows it.
fn parse_part<'a>(whole: &str, text: &'a str) -> Result<(u128, &'a str), String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(format!("{whole:?} is no duration; write a number with a unit, such as 90s or 1h30m"));
    }
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, tail) = rest.split_at(unit_end);
    if unit.is_empty() {
        return Err(format!("{whole:?} has no unit; write {whole}s for seconds, or use ms, m or h"));
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let hint = if unit == "d" { "; write days as hours, 24h" } else { "" };
        return Err(format!("{whole:?} has the unknown unit {unit:?}; known are h, m, s, ms, us, ns{hint}"));
    };
    let integer: u128 = if integer.is_empty() {
        0
    } else {
        integer.parse::<u64>().map_err(|_| format!("{whole:?} is too long"))?.into()
    };
    let kept = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let part = if kept.is_empty() {
        0
    } else {
        let digits: u128 = kept.parse().map_err(|_| format!("{whole:?} is no duration"))?;
        let places = u32::try_from(kept.len()).unwrap_or(0);
        digits * scale / 10_u128.pow(places)
    };
    Ok((integer * scale + part, tail))
}

/// Writes a duration so that [`parse_duration`] reads it back unchanged: `1h30m`, `100ms`, `0`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    if rest == 0 {
        return "0".to_owned();
    }
    let mut text = String::new();
    for (unit, scale) in UNITS {
        let count = rest / scale;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
            rest %= scale;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("100ms", 100_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("+2m", 120_000_000_000),
            ("1us", 1_000),
            ("1\u{b5}s", 1_000),
            ("1\u{3bc}s", 1_000),
            ("7ns", 7),
            ("1s1s", 2_000_000_000),
            ("2562047h47m16.854775807s", i64::MAX as u128),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_nanos()), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_with_a_hint() {
        for (text, part) in [
            ("90", "write 90s"),
            ("1d", "24h"),
            ("", "no duration"),
            ("s", "no duration"),
            (".s", "no duration"),
            ("1.2.3s", "no duration"),
            ("-1s", "negative"),
            ("1h30", "has no unit"),
            ("5 s", "unknown unit"),
            ("9999999h", "too long"),
            ("99999999999999999999s", "too long"),
        ] {
            let error = parse_duration(text).err().unwrap_or_default();
            assert!(error.contains(part), "{text:?}: {error:?} should contain {part:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_written_duration_is_read_back(nanos in 0_u64..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            proptest::prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse_duration(&text);
        }
    }
}
