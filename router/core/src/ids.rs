//! Names that must not be swapped for each other.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is; nothing is trimmed or checked.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// A model's name. Inside the router this is the engine's served name; the client's alias is resolved to it
    /// before anything is looked up (decision D2).
    ModelName
);
name_type!(
    /// A LoRA adapter's name, as the client and the engine spell it.
    AdapterName
);
name_type!(
    /// The id a request is known by in logs, in the decision ring and in `x-request-id`.
    RequestId
);

/// One data-parallel rank of one engine pod: who owns cached blocks, and who a request is sent to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId {
    /// Kubernetes namespace; `default` when standalone.
    pub namespace: Arc<str>,
    /// Pod name; `host` of the URL when standalone.
    pub pod: Arc<str>,
    /// The engine's HTTP port.
    pub port: u16,
    /// Data-parallel rank, 0 without data parallelism.
    pub rank: u32,
}

impl EndpointId {
    /// An id from its parts.
    pub fn new(namespace: impl Into<Arc<str>>, pod: impl Into<Arc<str>>, port: u16, rank: u32) -> Self {
        Self { namespace: namespace.into(), pod: pod.into(), port, rank }
    }
}

impl fmt::Display for EndpointId {
    /// `namespace/pod:port`, with `#rank` after it for ranks above 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.pod, self.port)?;
        if self.rank > 0 {
            write!(f, "#{}", self.rank)?;
        }
        Ok(())
    }
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for EndpointId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A small number that stands for one [`EndpointId`] in the block index.
///
/// The registry hands them out from 0 and gives a freed number to a later endpoint only after the index has
/// forgotten the earlier one, so sets of owners stay dense.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct OwnerSlot(pub u32);
