//! What an answer, or the lack of one, means to the caller.

use redis::{ErrorKind, FromRedisValue, RedisError, ServerError, ServerErrorKind, Value};

/// Why a command has no answer. Names no key, no address and no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, or it broke before the answer came. The command may have been carried out.
    #[error("Redis is not reachable")]
    Unreachable,
    /// No answer within the limit. The command may be carried out later.
    #[error("Redis took too long")]
    TimedOut,
    /// The server answered with an error; the command was not carried out.
    #[error("Redis refused: {0}")]
    Refused(Refusal),
}

/// The errors that a caller may want to tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// Not logged in, a wrong password, or a command or key that the user may not use.
    #[error("no permission (NOAUTH, WRONGPASS or NOPERM)")]
    NoAuth,
    /// The key's slot is elsewhere or nowhere, also after following the Cluster's redirections.
    #[error("the slot is served elsewhere (MOVED, ASK, CLUSTERDOWN or CROSSSLOT)")]
    Moved,
    /// The server reads its data set, or waits for its master.
    #[error("it is loading (LOADING or MASTERDOWN)")]
    Loading,
    /// Memory is full and the server evicts nothing.
    #[error("its memory is full (OOM)")]
    OutOfMemory,
    /// The server is a replica, or may not write.
    #[error("it is read-only (READONLY)")]
    ReadOnly,
    /// The key holds another type.
    #[error("the key holds another type (WRONGTYPE)")]
    WrongType,
    /// The script is not known there.
    #[error("it does not know the script (NOSCRIPT)")]
    NoScript,
    /// Anything else, also an answer of another shape than expected.
    #[error("another error")]
    Other,
}

impl StoreError {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timeout",
            Self::Refused(refusal) => refusal.as_str(),
        }
    }

    /// What a client error amounts to.
    pub(super) fn of(error: &RedisError) -> Self {
        if let Some(code) = error.code() {
            return Self::Refused(Refusal::of_code(code));
        }
        match error.kind() {
            ErrorKind::Server(_) => Self::Refused(Refusal::Other),
            ErrorKind::AuthenticationFailed => Self::Refused(Refusal::NoAuth),
            ErrorKind::UnexpectedReturnType | ErrorKind::Client | ErrorKind::InvalidClientConfig => {
                Self::Refused(Refusal::Other)
            }
            _ if error.is_timeout() => Self::TimedOut,
            _ => Self::Unreachable,
        }
    }
}

impl Refusal {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoAuth => "no_auth",
            Self::Moved => "moved",
            Self::Loading => "loading",
            Self::OutOfMemory => "out_of_memory",
            Self::ReadOnly => "read_only",
            Self::WrongType => "wrong_type",
            Self::NoScript => "no_script",
            Self::Other => "refused",
        }
    }

    fn of_code(code: &str) -> Self {
        match code {
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Self::NoAuth,
            "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" | "TRYAGAIN" => Self::Moved,
            "LOADING" | "MASTERDOWN" => Self::Loading,
            "OOM" => Self::OutOfMemory,
            "READONLY" => Self::ReadOnly,
            "WRONGTYPE" => Self::WrongType,
            "NOSCRIPT" => Self::NoScript,
            _ => Self::Other,
        }
    }

    fn of_server(error: &ServerError) -> Self {
        // The crate files an error that a script raised under ERR, with the original code in front of the text.
        match error.kind() {
            Some(ServerErrorKind::ResponseError) => error
                .details()
                .and_then(|text| text.split_whitespace().next())
                .map_or(Self::Other, Self::of_code),
            _ => Self::of_code(error.code()),
        }
    }
}

/// What error, if any, one command of a pipeline got.
pub fn refusal(value: &Value) -> Option<Refusal> {
    match value {
        Value::ServerError(error) => Some(Refusal::of_server(error)),
        _ => None,
    }
}

/// The answer as a `T`.
pub(super) fn typed<T: FromRedisValue>(value: Value) -> Result<T, StoreError> {
    if let Some(refusal) = refusal(&value) {
        return Err(StoreError::Refused(refusal));
    }
    redis::from_redis_value(value).map_err(|_| StoreError::Refused(Refusal::Other))
}

/// An error in words for status and log. The text of a server's error may repeat arguments, a password among them, so
/// only its code is shown.
pub(super) fn describe(error: &RedisError) -> String {
    match (error.code(), error.kind()) {
        (Some(code), _) => format!("the server answered {}", code.chars().take(32).collect::<String>()),
        (None, ErrorKind::Io) => error.to_string().chars().take(200).collect(),
        (None, ErrorKind::AuthenticationFailed) => "the server refused the user or password".to_owned(),
        (None, _) => error.category().to_owned(),
    }
}
