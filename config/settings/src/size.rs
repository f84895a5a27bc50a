//! Sizes in bytes: `33554432`, `32MiB`, `64M`.

/// Units with their bytes, largest first; `K`, `M`, `G` and `T` are powers of 1000, as in Kubernetes quantities.
const UNITS: [(&str, u64); 13] = [
    ("tib", 1 << 40),
    ("ti", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("t", 1_000_000_000_000),
    ("gib", 1 << 30),
    ("gi", 1 << 30),
    ("gb", 1_000_000_000),
    ("g", 1_000_000_000),
    ("mib", 1 << 20),
    ("mi", 1 << 20),
    ("mb", 1_000_000),
    ("m", 1_000_000),
    ("b", 1),
];

/// The same for thousands.
const SMALL_UNITS: [(&str, u64); 4] = [("kib", 1 << 10), ("ki", 1 << 10), ("kb", 1_000), ("k", 1_000)];

/// Reads a size. Units are not case-sensitive; without one the number is bytes.
///
/// # Errors
/// A sentence that names what is wrong and the fix.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    if number.is_empty() {
        return Err(format!(
            "{text:?} is no size; write bytes, or a whole number with a unit, such as 32MiB"
        ));
    }
    let unit = unit.trim().to_ascii_lowercase();
    let scale = if unit.is_empty() {
        1
    } else {
        UNITS.iter().chain(&SMALL_UNITS).find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(
            || format!("{text:?} has an unknown unit; known are KiB, MiB, GiB, TiB, K, M, G, T"),
        )?
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(scale))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Writes a size so that [`parse_size`] reads it back unchanged, in the largest binary unit that fits.
pub fn format_size(bytes: usize) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let scale = 1_u64 << shift;
        let bytes = bytes as u64;
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{unit}", bytes / scale);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("32MiB", 32 << 20),
            ("32Mi", 32 << 20),
            ("64M", 64_000_000),
            ("64mb", 64_000_000),
            ("1k", 1_000),
            ("2 GiB", 2 << 30),
            (" 1Ti ", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_bad_size_says_what_is_wrong() {
        for (text, part) in [
            ("", "no size"),
            ("MiB", "no size"),
            ("-1", "no size"),
            ("1.5G", "unknown unit"),
            ("3 parsecs", "unknown unit"),
            ("99999999999999999999", "too large"),
            ("99999999TiB", "too large"),
        ] {
            let error = parse_size(text).err().unwrap_or_default();
            assert!(error.contains(part), "{text:?}: {error:?} should contain {part:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_written_size_is_read_back(bytes in proptest::num::usize::ANY, shift in 0_u32..40) {
            for bytes in [bytes, (bytes % 1024) << shift] {
                proptest::prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
            }
        }
    }
}
