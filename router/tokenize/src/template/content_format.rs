//! Which form of message content a template reads, found out as the engine does: from the template's text.
//!
//! A template that loops over a message's content wants a list of parts ("openai"); any other wants one string. The
//! engine looks for `for item in message.content`, where `message` runs over `messages` or over a variable that was
//! set from it, through filters, tests and slices.

use std::collections::HashSet;

/// The form of `content` in the messages a template gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentFormat {
    /// One string.
    Text,
    /// A list of parts.
    Parts,
}

impl ContentFormat {
    /// Detects the format.
    pub fn of(template: &str) -> Self {
        if Scan::of(template).loops_over_content().unwrap_or(false) { Self::Parts } else { Self::Text }
    }
}

/// A piece of an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token<'a> {
    Name(&'a str),
    Text(&'a str),
    Sign(char),
}

/// Where a loop or an assignment stores, when that is a plain name.
type Target<'a> = Option<&'a str>;

/// What a loop runs over or an assignment takes: a variable, or one attribute of it, through filters, tests and
/// slices. Anything else is not kept.
#[derive(Debug)]
struct Access<'a> {
    variable: &'a str,
    attribute: Option<&'a str>,
}

/// All loops and assignments of a template.
#[derive(Debug, Default)]
struct Scan<'a> {
    loops: Vec<(Target<'a>, Access<'a>)>,
    assignments: Vec<(Target<'a>, Access<'a>)>,
}

impl<'a> Scan<'a> {
    fn of(template: &'a str) -> Self {
        let mut scan = Self::default();
        for statement in statements(template) {
            let tokens = tokenize(statement);
            match tokens.split_first() {
                Some((Token::Name("for"), rest)) => {
                    let Some(at) = rest.iter().position(|token| *token == Token::Name("in")) else {
                        continue;
                    };
                    let (target, iterated) = (&rest[..at], &rest[at + 1..]);
                    if let Some(access) = access(until_loop_option(iterated)) {
                        scan.loops.push((plain_name(target), access));
                    }
                }
                Some((Token::Name("set"), rest)) => {
                    let Some(at) = rest.iter().position(|token| *token == Token::Sign('=')) else { continue };
                    if let Some(access) = access(&rest[at + 1..]) {
                        scan.assignments.push((plain_name(&rest[..at]), access));
                    }
                }
                _ => {}
            }
        }
        scan
    }

    /// `None` when a store that matters goes to something else than a plain name: the engine gives up there and
    /// takes its default.
    fn loops_over_content(&self) -> Option<bool> {
        let mut lists = vec!["messages"];
        let mut known: HashSet<&str> = HashSet::from(["messages"]);
        let mut next = 0;
        while let Some(list) = lists.get(next).copied() {
            next += 1;
            for (target, access) in &self.assignments {
                if access.variable == list && access.attribute.is_none() {
                    let name = (*target)?;
                    if known.insert(name) {
                        lists.push(name);
                    }
                }
            }
        }
        let mut messages: HashSet<&str> = HashSet::new();
        for (target, access) in &self.loops {
            if access.attribute.is_none() && known.contains(access.variable) {
                messages.insert((*target)?);
            }
        }
        for (target, access) in &self.loops {
            if access.attribute == Some("content") && messages.contains(access.variable) {
                return (*target).map(|_| true);
            }
        }
        Some(false)
    }
}

/// The insides of all `{% … %}`, comments and printed expressions skipped.
fn statements(template: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = template.get(at..).and_then(|rest| rest.find('{')).map(|offset| at + offset) {
        let rest = template.get(open..).unwrap_or_default();
        let inside = open + 2;
        if rest.starts_with("{#") {
            at = rest.find("#}").map_or(template.len(), |end| open + end + 2);
        } else if rest.starts_with("{{") {
            at = end_of_block(template, inside, "}}");
        } else if rest.starts_with("{%") {
            at = end_of_block(template, inside, "%}");
            found.push(template.get(inside..at.saturating_sub(2).max(inside)).unwrap_or_default());
        } else {
            at = open + 1;
        }
    }
    found
}

/// Behind the closing sign, which may also stand inside a string.
fn end_of_block(template: &str, from: usize, close: &str) -> usize {
    let bytes = template.as_bytes();
    let mut quote = None;
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'"' || byte == b'\'' => quote = Some(byte),
            None if bytes.get(at..).is_some_and(|rest| rest.starts_with(close.as_bytes())) => {
                return at + close.len();
            }
            None => {}
        }
        at += 1;
    }
    template.len()
}

fn tokenize(statement: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let trimmed = statement.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
    let mut rest = trimmed;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Name(rest.get(..end).unwrap_or_default()));
            end
        } else if first == '"' || first == '\'' {
            let inner = rest.get(1..).unwrap_or_default();
            let end = inner.find(first).unwrap_or(inner.len());
            tokens.push(Token::Text(inner.get(..end).unwrap_or_default()));
            (end + 2).min(rest.len())
        } else {
            // Two signs that would look like an assignment.
            let doubled = ["==", "!=", "<=", ">="].iter().any(|pair| rest.starts_with(pair));
            if !first.is_whitespace() {
                tokens.push(Token::Sign(if doubled { '?' } else { first }));
            }
            if doubled { 2 } else { first.len_utf8() }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    tokens
}

fn plain_name<'a>(tokens: &[Token<'a>]) -> Target<'a> {
    match tokens {
        [Token::Name(name)] => Some(name),
        _ => None,
    }
}

/// Cuts `if CONDITION` and `recursive` off what a loop runs over.
fn until_loop_option<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0i32;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            Token::Name("if" | "recursive") if depth == 0 => return tokens.get(..at).unwrap_or_default(),
            _ => {}
        }
    }
    tokens
}

/// Reads `name`, `name.key` or `name['key']` with slices, filters and tests behind it.
fn access<'a>(tokens: &[Token<'a>]) -> Option<Access<'a>> {
    let mut tokens = tokens;
    while let [Token::Sign('('), inner @ .., Token::Sign(')')] = tokens {
        tokens = inner;
    }
    let (Token::Name(variable), mut rest) = tokens.split_first()? else { return None };
    let mut attribute = None;
    match rest {
        [Token::Sign('.'), Token::Name(key), after @ ..] => {
            attribute = Some(*key);
            rest = after;
        }
        [Token::Sign('['), Token::Text(key), Token::Sign(']'), after @ ..] => {
            attribute = Some(*key);
            rest = after;
        }
        _ => {}
    }
    loop {
        match rest {
            [] => return Some(Access { variable, attribute }),
            [Token::Sign('['), ..] => {
                let (inside, after) = bracketed(rest)?;
                if !inside.contains(&Token::Sign(':')) {
                    return None;
                }
                rest = after;
            }
            [Token::Sign('|'), Token::Name(_), after @ ..] => rest = skip_arguments(after)?,
            [Token::Name("is"), Token::Name("not"), Token::Name(_), ..] => return None,
            [Token::Name("is"), Token::Name(_), after @ ..] => rest = skip_arguments(after)?,
            _ => return None,
        }
    }
}

fn skip_arguments<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    match tokens {
        [Token::Sign('('), ..] => bracketed(tokens).map(|(_, after)| after),
        _ => Some(tokens),
    }
}

/// What stands in the bracket that opens the slice, and what comes after it.
fn bracketed<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<(&'t [Token<'a>], &'t [Token<'a>])> {
    let mut depth = 0i32;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => {
                depth -= 1;
                if depth == 0 {
                    return Some((tokens.get(1..at)?, tokens.get(at + 1..)?));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found() {
        for (template, format) in [
            ("{% for m in messages %}{{ m.content }}{% endfor %}", ContentFormat::Text),
            (
                "{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}",
                ContentFormat::Parts,
            ),
            ("{%- for m in messages[1:] -%}{%- for c in m.content | list -%}", ContentFormat::Parts),
            (
                "{% set rest = messages[1:] %}{% for m in rest if m.role == 'x' %}{% for c in m.content %}",
                ContentFormat::Parts,
            ),
            (
                "{% set a = messages %}{% set b = a %}{% for m in b %}{% for c in m.content %}",
                ContentFormat::Parts,
            ),
            ("{% for m in messages %}{% for c in other.content %}", ContentFormat::Text),
            ("{% for m in messages %}{% for c in m.tool_calls %}", ContentFormat::Text),
            ("{# {% for m in messages %}{% for c in m.content %} #}", ContentFormat::Text),
            ("{% for m in messages %}{% for c in m.content.parts %}", ContentFormat::Text),
            ("{% for m in messages %}{% for c in m.content[0] %}", ContentFormat::Text),
            ("{% for m in messages %}{% for c in m.content + x %}", ContentFormat::Text),
            (
                "{{ '%}' }}{% for m in messages %}{% for c in m.content if c.type == 'text' %}",
                ContentFormat::Parts,
            ),
            ("{% set ns.x = messages %}{% for m in messages %}{% for c in m.content %}", ContentFormat::Text),
            ("{% for i, m in messages %}{% for c in m.content %}", ContentFormat::Text),
            ("", ContentFormat::Text),
        ] {
            assert_eq!(ContentFormat::of(template), format, "{template}");
        }
    }

    #[test]
    fn broken_templates_do_not_panic() {
        for template in
            ["{%", "{{ '", "{% for", "{% for x in", "{% set", "{#", "{% for x in (a", "{% set é = ü['"]
        {
            assert_eq!(ContentFormat::of(template), ContentFormat::Text);
        }
    }
}
