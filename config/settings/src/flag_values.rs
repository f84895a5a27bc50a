//! Turns the texts of flags and variables into values, noting every one that does not fit.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::compat::parse_bool;
use crate::coordination::SharedLoadMode;
use crate::defaults;
use crate::duration::{format_duration, parse_duration};
use crate::problems::{Findings, Place};
use crate::resolved::PdFallback;
use crate::size::{format_size, parse_size};
use crate::suggest;

/// Reads values. Where one does not fit, it is noted and some value stands in, so that reading goes on.
pub(crate) struct FlagValues<'f> {
    findings: &'f mut Findings,
}

impl<'f> FlagValues<'f> {
    pub(crate) fn new(findings: &'f mut Findings) -> Self {
        Self { findings }
    }

    fn error(&mut self, flag: &str, message: impl Into<String>, fix: impl Into<String>) {
        self.findings.error(&Place::flag(flag), message, fix);
    }

    /// A listener's address, with the port of `port_flag` where that was given.
    pub(crate) fn address(
        &mut self,
        flag: &str,
        text: &str,
        port_flag: &str,
        port: Option<&str>,
    ) -> SocketAddr {
        let mut address = parse_address(text).unwrap_or_else(|message| {
            self.error(flag, message, "write IP:PORT, such as [::]:8080 or 127.0.0.1:15000");
            SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
        });
        if let Some(port) = port.and_then(|text| self.port(port_flag, text)) {
            address.set_port(port);
        }
        address
    }

    /// A port that is not 0.
    pub(crate) fn port(&mut self, flag: &str, text: &str) -> Option<u16> {
        let port = text.trim().parse::<u16>().ok().filter(|port| *port != 0);
        if port.is_none() {
            self.error(flag, format!("{text:?} is no port"), "write a number from 1 to 65535");
        }
        port
    }

    /// Two listeners must not meet. Port 0 is a free port of the system's choice.
    pub(crate) fn apart(&mut self, first: (&str, SocketAddr), second: (&str, SocketAddr)) {
        let (one, other) = (first.1, second.1);
        let same_host = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
        if one.port() != 0 && one.port() == other.port() && same_host {
            let message = format!("uses the same address as {} ({one})", first.0);
            self.error(second.0, message, "give each listener its own port");
        }
    }

    /// A size of at least one byte.
    pub(crate) fn size(&mut self, flag: &str, text: &str) -> usize {
        match parse_size(text) {
            Ok(0) => {
                self.error(flag, "is 0", "write a size, such as 32MiB");
                1
            }
            Ok(bytes) => bytes,
            Err(message) => {
                self.error(flag, message, "");
                1
            }
        }
    }

    /// The sum of all bodies: a quarter of the memory limit unless said otherwise; one body must always fit.
    pub(crate) fn buffered(&mut self, text: Option<&str>, one_body: usize, memory: Option<u64>) -> usize {
        const FLAG: &str = "--max-buffered-bytes";
        let Some(text) = text else {
            let quarter = memory.map(|bytes| bytes / defaults::MAX_BUFFERED_SHARE);
            let derived = quarter
                .map_or(defaults::MAX_BUFFERED_UNKNOWN, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
            return derived.max(one_body);
        };
        let bytes = self.size(FLAG, text);
        if bytes < one_body {
            let message = format!("{text} is smaller than --max-body-bytes ({})", format_size(one_body));
            self.error(FLAG, message, "raise it, or lower --max-body-bytes");
        }
        bytes
    }

    /// A duration; 0 only where it means something.
    pub(crate) fn duration(&mut self, flag: &str, text: &str, zero: bool) -> Duration {
        match parse_duration(text) {
            Ok(Duration::ZERO) if !zero => {
                self.error(flag, "is 0", "write a duration above 0; a limit cannot be switched off");
                Duration::ZERO
            }
            Ok(duration) => duration,
            Err(message) => {
                self.error(flag, message, "");
                Duration::ZERO
            }
        }
    }

    /// A count within a range.
    pub(crate) fn count(&mut self, flag: &str, text: &str, range: RangeInclusive<usize>) -> usize {
        match text.trim().parse::<usize>() {
            Ok(count) if range.contains(&count) => count,
            _ => {
                let fix = format!("write a whole number from {} to {}", range.start(), range.end());
                self.error(flag, format!("{text:?} does not fit"), fix);
                *range.start()
            }
        }
    }

    /// A share from 0 to 1.
    pub(crate) fn share(&mut self, flag: &str, text: &str) -> f64 {
        match text.trim().parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => share,
            _ => {
                self.error(flag, format!("{text:?} is no share"), "write a number from 0 to 1");
                0.0
            }
        }
    }

    /// A boolean as Go reads it.
    pub(crate) fn boolean(&mut self, flag: &str, text: Option<&str>, otherwise: bool) -> bool {
        let Some(text) = text else { return otherwise };
        parse_bool(text).unwrap_or_else(|| {
            self.error(flag, format!("{text:?} is no boolean"), "write true or false");
            otherwise
        })
    }

    /// The name of a mode.
    pub(crate) fn shared_load(&mut self, flag: &str, text: &str) -> SharedLoadMode {
        self.mode(flag, text, &SharedLoadMode::ALL, SharedLoadMode::as_str)
    }

    /// The name of a mode.
    pub(crate) fn pd_fallback(&mut self, flag: &str, text: &str) -> PdFallback {
        self.mode(flag, text, &PdFallback::ALL, PdFallback::as_str)
    }

    fn mode<M: Copy + Default>(
        &mut self,
        flag: &str,
        text: &str,
        all: &[M],
        name_of: fn(M) -> &'static str,
    ) -> M {
        let name = text.trim();
        all.iter().copied().find(|mode| name_of(*mode) == name).unwrap_or_else(|| {
            let known: Vec<&str> = all.iter().copied().map(name_of).collect();
            let fix = match suggest::closest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("known: {}", known.join(", ")),
            };
            self.error(flag, format!("there is no mode {name:?}"), fix);
            M::default()
        })
    }

    /// `json` gives true, `text` false.
    pub(crate) fn log_format(&mut self, flag: &str, text: &str) -> bool {
        match text {
            "json" => true,
            "text" => false,
            other => {
                self.error(flag, format!("there is no format {other:?}"), "write text or json");
                false
            }
        }
    }

    /// kthena's rule for a duration in a variable: above 0, or the default with a warning.
    pub(crate) fn kthena_duration(
        &mut self,
        name: &str,
        text: Option<&str>,
        otherwise: Duration,
    ) -> Duration {
        let Some(text) = text else { return otherwise };
        match parse_duration(text) {
            Ok(duration) if !duration.is_zero() => duration,
            read => {
                let reason = read.err().unwrap_or_else(|| format!("{text:?} is not above 0"));
                let message = format!("{reason}; {} is used", format_duration(otherwise));
                self.findings.warn(&Place::flag(name), message);
                otherwise
            }
        }
    }

    /// kthena's rule for a boolean in a variable: what is none has no effect; here that is said.
    pub(crate) fn kthena_boolean(&mut self, name: &str, text: Option<&str>, otherwise: bool) -> bool {
        let Some(text) = text else { return otherwise };
        parse_bool(text).unwrap_or_else(|| {
            let message = format!("{text:?} is no boolean; {otherwise} is used");
            self.findings.warn(&Place::flag(name), message);
            otherwise
        })
    }

    /// kthena's rule for the log's format: what is neither `json` nor `text` has no effect; here that is said.
    pub(crate) fn kthena_log_format(&mut self, name: &str, text: Option<&str>) -> bool {
        match text {
            None | Some("text") => false,
            Some("json") => true,
            Some(other) => {
                let message = format!("there is no format {other:?}; text is used");
                self.findings.warn(&Place::flag(name), message);
                false
            }
        }
    }
}

/// `IP:PORT`; also `:PORT` for all interfaces of IPv4 and IPv6, as Go writes it, and `localhost:PORT`.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let full = match text.rsplit_once(':') {
        Some(("", port)) => format!("[::]:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    };
    full.parse().map_err(|_| format!("{text:?} is no address"))
}
