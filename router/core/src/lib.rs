//! The words and the contracts of the router: plain types and traits, with no I/O, no Kubernetes and no proxy.
//!
//! Every other room speaks these words. A contract names no neighbour's type; each says who calls it, what
//! may fail, and what is safe to repeat.

pub mod admission;
pub mod block;
pub mod block_index;
pub mod block_query;
pub mod candidates;
pub mod clock;
pub mod connector;
pub mod cycle;
pub mod decision;
pub mod endpoint;
pub mod error;
pub mod ids;
pub mod kv_event;
pub mod load;
pub mod plugin;
pub mod record;
pub mod request;
pub mod shared_blocks;
pub mod side_call;
pub mod tokens;
pub mod usage;

pub use admission::{AdmissionMeter, ModelPods, PodCount, QueueKind, UsageBoard, UsageKey, UsageShare};
pub use block::{BlockChain, BlockHash, BlockSize, CacheScope};
pub use block_index::{BlockIndex, PrefixHit};
pub use block_query::{BlockLookup, BlockQuery, QueryError, QueryOwner};
pub use candidates::{Candidate, Candidates, Phase};
pub use clock::{Clock, SystemClock};
pub use connector::ConnectorKind;
pub use cycle::{CycleState, TokenSlot};
pub use decision::{Decision, Pick, PrefillPick, ScoreLine, ScorerTotals};
pub use endpoint::{Address, Completeness, Endpoint, EndpointDirectory, EngineKind, Role, UpstreamTls};
pub use error::{ErrorKind, Origin, RouterError};
pub use ids::{AdapterName, EndpointId, ModelName, OwnerSlot, RequestId};
pub use kv_event::{EngineHash, KvEvent, Medium, Stored};
pub use load::{
    AdapterStanding, EngineAdapters, EngineSample, InFlightCost, Load, LoadBoard, SampleError, SampleSink,
    SharedLoad,
};
pub use plugin::{
    DataProducer, Filter, Needs, NoMeter, Picker, PlacementObserver, Plugin, ProduceError, ScheduleError,
    ScheduleMeter, Scorer, Scores,
};
pub use record::DecisionRecord;
pub use request::{InferenceRequest, Prompt, RequestKind, SessionKey};
pub use shared_blocks::{BlockChange, HeldOn, MirrorSink, OwnerChanges, OwnerContent, OwnerJournal};
pub use side_call::{SideClient, SideError, SideRequest, SideResponse};
pub use tokens::{TokenIds, TokenSource, TokenizeError, Tokenized, Tokenizer};
pub use usage::Usage;

/// A future behind a pointer, for the seams that are used as `dyn`.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
