//! Everything that is wrong with what was said, gathered before anything is refused.

use std::fmt;
use std::sync::Arc;

/// Findings beyond this many are counted but not kept: a document of another kind must not flood the log.
const MOST_FINDINGS: usize = 200;

/// Where something was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file; empty for a flag or an environment variable.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: Option<usize>,
    /// Column, counted from 1.
    pub column: Option<usize>,
    /// The key's path inside the file, or the flag.
    pub path: String,
}

impl Place {
    /// A flag or an environment variable.
    pub(crate) fn flag(name: &str) -> Self {
        Self { path: name.to_owned(), ..Self::default() }
    }

    /// The whole of a file.
    pub(crate) fn file(name: &str) -> Self {
        Self { file: name.into(), ..Self::default() }
    }

    /// The same file and path at another position.
    pub(crate) fn at(&self, line: usize, column: usize) -> Self {
        Self { line: Some(line), column: Some(column), ..self.clone() }
    }

    /// A key below this one.
    pub(crate) fn key(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, ..self.clone() }
    }

    /// An item of this list.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), ..self.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return f.write_str(&self.path.escape_debug().to_string());
        }
        write!(f, "{}", self.file.escape_debug())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path.escape_debug())?;
        }
        Ok(())
    }
}

/// A value with the place it was said at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Located<T> {
    pub value: T,
    pub place: Place,
}

impl<T> Located<T> {
    pub(crate) fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for Located<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file; empty for a flag or an environment variable.
    pub file: String,
    /// Line, counted from 1.
    pub line: Option<usize>,
    /// Column, counted from 1.
    pub column: Option<usize>,
    /// The key's path inside the file, or the flag.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead; empty when the message says it all.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Place {
            file: self.file.as_str().into(),
            line: self.line,
            column: self.column,
            path: self.path.clone(),
        };
        let text = place.to_string();
        f.write_str(&text)?;
        if !text.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&one_line(&self.message))?;
        if !self.fix.is_empty() {
            write!(f, "; {}", one_line(&self.fix))?;
        }
        Ok(())
    }
}

/// Messages quote what was written; a line break in it must not start a new line of the report.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// All problems of all files and flags; displayed one a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects problems and warnings while the settings are worked out.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Findings {
    /// Something that keeps the router from starting.
    pub(crate) fn error(&mut self, place: &Place, message: impl Into<String>, fix: impl Into<String>) {
        if self.problems.len() < MOST_FINDINGS {
            self.problems.push(problem(place, message.into(), fix.into()));
        }
    }

    /// Something that is said in the log and lived with.
    pub(crate) fn warn(&mut self, place: &Place, message: impl Into<String>) {
        if self.warnings.len() < MOST_FINDINGS {
            self.warnings.push(problem(place, message.into(), String::new()).to_string());
        }
    }

    /// How many problems there are so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// The warnings, when there is no problem.
    pub(crate) fn into_result(self) -> Result<Vec<String>, Problems> {
        if self.problems.is_empty() { Ok(self.warnings) } else { Err(Problems(self.problems)) }
    }

    #[cfg(test)]
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    #[cfg(test)]
    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }
}

fn problem(place: &Place, message: String, fix: String) -> Problem {
    Problem {
        file: place.file.to_string(),
        line: place.line,
        column: place.column,
        path: place.path.clone(),
        message,
        fix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_place_and_its_fix_on_one_line() {
        let mut findings = Findings::default();
        let place = Place::file("a.yaml").key("models").item(2).key("name").at(3, 5);
        findings.error(&place, "is \"x\ny\"", "write z");
        findings.error(&Place::flag("--listen"), "no address", "");
        let problems = findings.into_result().err().unwrap_or_default();
        assert_eq!(
            problems.to_string(),
            "a.yaml:3:5: models[2].name: is \"x y\"; write z\n--listen: no address"
        );
    }

    #[test]
    fn findings_are_bounded() {
        let mut findings = Findings::default();
        for _ in 0..10_000 {
            findings.error(&Place::flag("x"), "y", "");
            findings.warn(&Place::flag("x"), "y");
        }
        assert_eq!((findings.problem_count(), findings.warnings().len()), (MOST_FINDINGS, MOST_FINDINGS));
    }
}
