//! `strftime_now`: the date that some templates print.

use std::fmt::Write as _;
use std::sync::Arc;

use time::OffsetDateTime;

/// Tells the wall-clock time for `strftime_now`. Injected, so that tests own it.
pub type WallClock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// The machine's clock, in UTC: engines run in containers, and those keep UTC.
pub fn system_wall_clock() -> WallClock {
    Arc::new(OffsetDateTime::now_utc)
}

/// The directives of Python's `strftime` that templates use. Others are printed as they stand, as the C library does
/// with those it does not know.
pub fn format(now: OffsetDateTime, pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let unpadded = letters.next_if_eq(&'-').is_some();
        let Some(directive) = letters.next() else {
            out.push('%');
            break;
        };
        if !write_directive(&mut out, now, directive, unpadded) {
            out.push('%');
            if unpadded {
                out.push('-');
            }
            out.push(directive);
        }
    }
    out
}

fn write_directive(out: &mut String, now: OffsetDateTime, directive: char, unpadded: bool) -> bool {
    let mut number = |value: u32, width: usize| {
        let _ = if unpadded { write!(out, "{value}") } else { write!(out, "{value:0width$}") };
    };
    let twelve = |hour: u8| u32::from(if hour.is_multiple_of(12) { 12 } else { hour % 12 });
    match directive {
        'd' => number(now.day().into(), 2),
        'm' => number(u8::from(now.month()).into(), 2),
        'Y' => {
            let _ = write!(out, "{}", now.year());
        }
        'y' => number(now.year().rem_euclid(100).unsigned_abs(), 2),
        'H' => number(now.hour().into(), 2),
        'I' => number(twelve(now.hour()), 2),
        'M' => number(now.minute().into(), 2),
        'S' => number(now.second().into(), 2),
        'j' => number(now.ordinal().into(), 3),
        'p' => out.push_str(if now.hour() < 12 { "AM" } else { "PM" }),
        'B' => out.push_str(&now.month().to_string()),
        'b' | 'h' => out.extend(now.month().to_string().chars().take(3)),
        'A' => out.push_str(&now.weekday().to_string()),
        'a' => out.extend(now.weekday().to_string().chars().take(3)),
        'F' => out.push_str(&format(now, "%Y-%m-%d")),
        'T' => out.push_str(&format(now, "%H:%M:%S")),
        '%' => out.push('%'),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_print_as_strftime_prints_them() {
        // 2024-07-06 15:04:05 UTC, a Saturday.
        let now = OffsetDateTime::from_unix_timestamp(1_720_278_245).unwrap();
        for (pattern, text) in [
            ("%d %b %Y", "06 Jul 2024"),
            ("%-d %B %y", "6 July 24"),
            ("%A %a %j", "Saturday Sat 188"),
            ("%F %T %I%p", "2024-07-06 15:04:05 03PM"),
            ("100%% %Q %", "100% %Q %"),
        ] {
            assert_eq!(format(now, pattern), text);
        }
    }
}
