//! What may not be chosen.

pub mod least_request;
pub mod lora_affinity;
