//! How replicas share what they know: the modes, and the names that users type.

/// Where the blocks that engines hold are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinationMode {
    /// In the index in memory, which follows engines and Redis.
    Mirror,
    /// In kthena's layout in Redis, for each request.
    Query,
}

impl CoordinationMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Mirror, Self::Query];

    /// As users type it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Query => "query",
        }
    }
}

/// How replicas tell each other what they have in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SharedLoadMode {
    /// By our own vectors in Redis; by kthena's counters where routers of kthena keep them.
    #[default]
    Auto,
    /// By our own vectors only.
    Native,
    /// By kthena's counters only.
    Kthena,
    /// Not at all.
    Off,
}

impl SharedLoadMode {
    /// Every mode.
    pub(crate) const ALL: [Self; 4] = [Self::Auto, Self::Native, Self::Kthena, Self::Off];

    /// As users type it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Kthena => "kthena",
            Self::Off => "off",
        }
    }
}
