//! Which keys the agent writes.

/// What is written into Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// For Kvasir's routers.
    Native,
    /// For kthena's.
    Kthena,
    /// For both.
    Both,
}

impl Layout {
    /// The word of the flag, in any case.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Native, Self::Kthena, Self::Both];
        all.into_iter().find(|layout| layout.as_str().eq_ignore_ascii_case(text.trim()))
    }

    /// The word of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Kthena => "kthena",
            Self::Both => "both",
        }
    }

    /// Whether Kvasir's own layout is written.
    pub fn is_native(self) -> bool {
        self != Self::Kthena
    }

    /// Whether kthena's layout is written.
    pub fn is_kthena(self) -> bool {
        self != Self::Native
    }
}
