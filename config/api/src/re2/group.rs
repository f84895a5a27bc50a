//! Opening brackets: capturing or not, named, with flags.

use super::RegexError;
use super::translate::Rest;

/// Rewrites the beginning of a group whose bracket was taken. Names are left out: nothing asks for them, and RE2 takes
/// some that the engine does not.
pub(super) fn translate_group(rest: &mut Rest<'_>, out: &mut String) -> Result<(), RegexError> {
    out.push('(');
    if rest.next_if_eq(&'?').is_none() {
        return Ok(());
    }
    let from_here: String = "(?".chars().chain(rest.clone()).collect();
    let is_named = from_here.starts_with("(?P<") || from_here.starts_with("(?<");
    if is_named { skip_name(&from_here, rest) } else { copy_flags(rest, out) }
}

fn skip_name(from_here: &str, rest: &mut Rest<'_>) -> Result<(), RegexError> {
    let Some((opening, _)) = from_here.split_once('>') else {
        return Err(RegexError::new("invalid named capture", from_here));
    };
    let name = opening.split_once('<').map_or("", |(_, name)| name);
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(RegexError::new("invalid named capture", format!("{opening}>")));
    }
    for next in rest.by_ref() {
        if next == '>' {
            break;
        }
    }
    Ok(())
}

/// `?:`, `?i)`, `?i-s:`; the question mark was taken.
fn copy_flags(rest: &mut Rest<'_>, out: &mut String) -> Result<(), RegexError> {
    let mut flags = String::new();
    let end = loop {
        let next = rest.next();
        match next {
            Some('i' | 'm' | 's' | 'U') => flags.extend(next),
            Some('-') if !flags.contains('-') => flags.push('-'),
            Some(end @ (':' | ')')) if !flags.ends_with('-') => break end,
            _ => {
                let seen: String = next.into_iter().collect();
                return Err(RegexError::new(
                    "invalid or unsupported Perl syntax",
                    format!("(?{flags}{seen}"),
                ));
            }
        }
    };
    if flags.is_empty() && end == ')' {
        // It changes nothing; the engine does not know it.
        out.push_str("?:)");
        return Ok(());
    }
    out.push('?');
    out.push_str(&flags);
    out.push(end);
    Ok(())
}
