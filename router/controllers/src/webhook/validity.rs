//! From when until when a certificate holds, read from its DER.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate, which the first version leaves out.
const VERSION: u8 = 0xa0;

/// When a certificate holds, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// From then on.
    pub from: SystemTime,
    /// Until then.
    pub until: SystemTime,
}

impl Validity {
    /// Reads it; `None` where the bytes are no certificate. rustls reads the rest of a certificate and says of this only
    /// whether it holds.
    pub fn read(certificate: &[u8]) -> Option<Self> {
        let mut fields = Elements(certificate).inside(SEQUENCE)?.inside(SEQUENCE)?;
        if fields.0.first() == Some(&VERSION) {
            fields.take()?;
        }
        // The serial number, the algorithm, the issuer.
        for _ in 0..3 {
            fields.take()?;
        }
        let mut times = fields.inside(SEQUENCE)?;
        let validity = Self { from: times.time()?, until: times.time()? };
        (validity.from <= validity.until).then_some(validity)
    }

    /// Whether it holds at this time.
    pub fn holds(&self, now: SystemTime) -> bool {
        self.from <= now && now <= self.until
    }

    /// Whether no more than a third of its life is left: time for another.
    pub fn is_due(&self, now: SystemTime) -> bool {
        let life = self.until.duration_since(self.from).unwrap_or_default();
        self.until.duration_since(now).unwrap_or_default() <= life / 3
    }
}

/// Elements of DER, one after the other.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The next one: its tag and its content.
    fn take(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let digits = usize::from(first & 0x7f);
            if digits == 0 || digits > 4 {
                return None;
            }
            let (length, after) = rest.split_at_checked(digits)?;
            rest = after;
            length.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit))
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    /// The elements in the next one, which must have this tag.
    fn inside(&mut self, tag: u8) -> Option<Elements<'a>> {
        let (found, content) = self.take()?;
        (found == tag).then_some(Elements(content))
    }

    /// The next one, a time: `YYMMDDhhmmssZ` until 2049, `YYYYMMDDhhmmssZ` from 2050.
    fn time(&mut self) -> Option<SystemTime> {
        let (tag, content) = self.take()?;
        let digits = content.strip_suffix(b"Z")?;
        let number = |digits: &[u8]| {
            digits.iter().try_fold(0i16, |sum, digit| {
                digit.is_ascii_digit().then(|| sum * 10 + i16::from(digit - b'0'))
            })
        };
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = digits.split_at_checked(2)?;
                let year = number(year)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = digits.split_at_checked(4)?;
                (number(year)?, rest)
            }
            _ => return None,
        };
        let (pairs, []) = rest.as_chunks::<2>() else { return None };
        let [month, day, hour, minute, second] = pairs else { return None };
        let part = |pair: &[u8; 2]| number(pair).and_then(|value| i8::try_from(value).ok());
        let time =
            DateTime::new(year, part(month)?, part(day)?, part(hour)?, part(minute)?, part(second)?, 0)
                .ok()?;
        let seconds = time.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs();
        let distance = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn certificate(from: (u8, &str), until: (u8, &str)) -> Vec<u8> {
        let time = |(tag, text): (u8, &str)| element(tag, text.as_bytes());
        let validity = element(SEQUENCE, &[time(from), time(until)].concat());
        let blank = element(SEQUENCE, &[]);
        let version = element(VERSION, &element(2, &[2]));
        let fields = [version, element(2, &[7]), blank.clone(), blank, validity].concat();
        element(SEQUENCE, &element(SEQUENCE, &fields))
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn both_forms_of_time_are_read() {
        let read =
            Validity::read(&certificate((UTC_TIME, "260102030405Z"), (GENERALIZED_TIME, "20500101000000Z")));
        assert_eq!(read, Some(Validity { from: at(1_767_323_045), until: at(2_524_608_000) }));
        let old = Validity::read(&certificate((UTC_TIME, "700101000001Z"), (UTC_TIME, "491231235959Z")));
        assert_eq!(old, Some(Validity { from: at(1), until: at(2_524_607_999) }));
        // What certificates say that never end.
        let long = certificate((UTC_TIME, "500101000000Z"), (GENERALIZED_TIME, "99991231235959Z"));
        assert!(Validity::read(&long).is_some_and(|validity| !validity.is_due(at(4_000_000_000))));
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        for (from, until) in [
            ((UTC_TIME, "261302030405Z"), (UTC_TIME, "271302030405Z")),
            ((UTC_TIME, "2601020304Z"), (UTC_TIME, "270102030405Z")),
            ((UTC_TIME, "260102030405"), (UTC_TIME, "270102030405Z")),
            ((4, "260102030405Z"), (UTC_TIME, "270102030405Z")),
            ((UTC_TIME, "280102030405Z"), (UTC_TIME, "270102030405Z")),
            ((UTC_TIME, "+60102030405Z"), (UTC_TIME, "270102030405Z")),
        ] {
            assert_eq!(Validity::read(&certificate(from, until)), None, "{from:?} {until:?}");
        }
        assert_eq!(Validity::read(&[]), None);
        assert_eq!(Validity::read(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn it_is_due_when_a_third_is_left() {
        let validity = Validity { from: at(1_000), until: at(4_000) };
        for (now, holds, due) in [
            (999, false, false),
            (1_000, true, false),
            (2_999, true, false),
            (3_000, true, true),
            (4_000, true, true),
            (4_001, false, true),
        ] {
            assert_eq!((validity.holds(at(now)), validity.is_due(at(now))), (holds, due), "{now}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Validity::read(&bytes);
        }

        #[test]
        fn a_certificate_with_a_wrong_byte_is_read_or_not(place in 0usize..50, byte in any::<u8>()) {
            let mut bytes = certificate((UTC_TIME, "260102030405Z"), (UTC_TIME, "270102030405Z"));
            if let Some(at) = bytes.get_mut(place) {
                *at = byte;
            }
            let _ = Validity::read(&bytes);
        }
    }
}
