//! One owner's requests as commands, and the server's answers as what they mean.

use std::time::Duration;

use redis::{Cmd, Value};

use super::request::{Answer, Beaten, Folded, Request};
use super::{LONGEST_LEASE, PublishedOwner, PublisherOptions};
use crate::connection::{Refusal, StoreError, refusal};
use crate::delta::StreamId;
use crate::key;
use crate::script::{KnownScripts, Script, ScriptKeys};
use crate::snapshot::completeness_code;

/// How long an owner stays in Redis after its writer is gone.
const KEPT: Duration = Duration::from_secs(600);
/// How long chunks stay that nobody refers to any more: readers may be at them.
const DROPPED: Duration = Duration::from_secs(60);
/// How long a delta stays; the chunks have it much sooner.
pub(super) const DELTAS_KEPT: Duration = Duration::from_secs(60);
/// How long a stream stays after its last writer is gone.
const STREAM_KEPT: Duration = Duration::from_secs(3600);

/// One owner's way to Redis and back.
#[derive(Debug)]
pub(super) struct Exchange {
    owner: String,
    writer: String,
    keys: ScriptKeys,
    model: String,
    adapters: String,
    engine: &'static str,
    lease_ms: u64,
    most_deltas: u32,
}

impl Exchange {
    pub(super) fn new(owner: &PublishedOwner, writer: &str, options: &PublisherOptions) -> Self {
        let name = key::owner(&owner.id);
        let stream = key::stream_of(&name);
        Self {
            keys: ScriptKeys {
                store: key::store(stream),
                owners: key::owners(stream),
                meta: key::meta(&name),
                deltas: key::deltas(stream),
            },
            owner: name,
            writer: writer.to_owned(),
            model: owner.model.to_string(),
            adapters: serde_json::to_string(&owner.adapters).unwrap_or_else(|_| "[]".to_owned()),
            engine: owner.engine.as_str(),
            lease_ms: millis(options.lease),
            most_deltas: options.most_deltas,
        }
    }

    pub(super) fn stream(&self) -> u8 {
        key::stream_of(&self.owner)
    }

    /// The script that a request runs, if it is one.
    pub(super) fn script(request: &Request) -> Option<Script> {
        match request {
            Request::Acquire => Some(Script::Acquire),
            Request::Commit(_) => Some(Script::Commit),
            Request::Delta { .. } => Some(Script::Delta),
            Request::Fold(_) => Some(Script::Fold),
            Request::Heartbeat { .. } => Some(Script::Heartbeat),
            Request::ResumeCommit { .. } => Some(Script::Resume),
            Request::Release { .. } => Some(Script::Release),
            _ => None,
        }
    }

    pub(super) fn command(&self, request: &Request, known: KnownScripts) -> Cmd {
        match request {
            Request::Chunk { generation, index, bytes } => {
                self.set(&key::chunk(&self.owner, *generation, *index), bytes)
            }
            Request::ResumePart { id, index, bytes } => {
                self.set(&key::resume(&self.owner, *id, *index), bytes)
            }
            Request::KeepChunk { generation, index } => {
                expire(&key::chunk(&self.owner, *generation, *index), self.kept_ms())
            }
            Request::DropChunk { generation, index } => {
                expire(&key::chunk(&self.owner, *generation, *index), millis(DROPPED))
            }
            Request::KeepResume { id, index } => {
                expire(&key::resume(&self.owner, *id, *index), self.kept_ms())
            }
            Request::DropResume { id, index } => {
                expire(&key::resume(&self.owner, *id, *index), millis(DROPPED))
            }
            scripted => self.scripted(scripted, known),
        }
    }

    fn scripted(&self, request: &Request, known: KnownScripts) -> Cmd {
        let script = Self::script(request).unwrap_or(Script::Acquire);
        let mut cmd = script.command(&self.keys, known);
        cmd.arg(&self.owner).arg(&self.writer);
        match request {
            Request::Commit(commit) => {
                let size = commit.block_size.map_or(0, u32::from);
                cmd.arg(self.lease_ms).arg(self.kept_ms()).arg(commit.epoch.to_string());
                cmd.arg(&commit.epoch.0.to_le_bytes()[..]).arg(commit.reason.as_str()).arg(self.most_deltas);
                cmd.arg("generation").arg(commit.generation).arg("chunks").arg(commit.chunks);
                cmd.arg("blocks")
                    .arg(commit.blocks)
                    .arg("model")
                    .arg(&self.model)
                    .arg("block_size")
                    .arg(size);
                cmd.arg("completeness").arg(completeness_code(commit.completeness));
                cmd.arg("adapters").arg(&self.adapters).arg("engine").arg(self.engine);
            }
            Request::Delta { epoch, seq, changes, blocks, completeness } => {
                cmd.arg(epoch.to_string()).arg(&epoch.0.to_le_bytes()[..]).arg(*seq).arg(&changes[..]);
                cmd.arg(*blocks).arg(completeness_code(*completeness)).arg(self.most_deltas);
            }
            Request::Fold(Folded { epoch, folds, floor, floor_id, generation, chunks }) => {
                cmd.arg(epoch.to_string()).arg(folds.asked).arg(folds.confirmed);
                cmd.arg(*floor).arg(floor_id.to_string()).arg(*generation).arg(*chunks);
            }
            Request::Heartbeat { epoch, seq, folds, tidy } => {
                cmd.arg(epoch.to_string()).arg(*seq).arg(folds.confirmed).arg(folds.asked);
                cmd.arg(self.lease_ms).arg(self.kept_ms()).arg(store_name());
                cmd.arg(millis(DELTAS_KEPT)).arg(tidy.trim_ms);
                cmd.arg(millis(STREAM_KEPT)).arg(millis(KEPT)).arg(tidy.now_ms);
            }
            Request::Release { left } => {
                cmd.arg(millis(*left));
            }
            Request::ResumeCommit { pointer } => {
                cmd.arg(pointer);
            }
            _ => {
                cmd.arg(self.lease_ms).arg(self.kept_ms()).arg(store_name()).arg(key::SCHEMA);
                cmd.arg(millis(LONGEST_LEASE));
            }
        }
        cmd
    }

    fn kept_ms(&self) -> u64 {
        millis(KEPT) + self.lease_ms
    }

    fn set(&self, key: &str, bytes: &[u8]) -> Cmd {
        let mut cmd = redis::cmd("SET");
        cmd.arg(key).arg(bytes).arg("PX").arg(self.kept_ms());
        cmd
    }

    /// What an answer means.
    pub(super) fn answer(request: &Request, value: &Value) -> Answer {
        if let Some(refusal) = refusal(value) {
            return Answer::Failed(StoreError::Refused(refusal));
        }
        let answer = match request {
            Request::KeepChunk { .. } | Request::KeepResume { .. } if *value == Value::Int(0) => {
                Some(Answer::Missing)
            }
            _ if Self::script(request).is_some() => scripted(request, value),
            _ => Some(Answer::Done(None)),
        };
        answer.unwrap_or(Answer::Failed(StoreError::Refused(Refusal::Other)))
    }
}

/// A script's answer; `None` where it is none of ours.
fn scripted(request: &Request, value: &Value) -> Option<Answer> {
    let words: Vec<String> = redis::from_redis_value_ref(value).ok()?;
    let word = |place: usize| words.get(place).map_or("", String::as_str);
    match (word(0), request) {
        ("fenced", _) => Some(Answer::Fenced),
        ("schema", _) => Some(Answer::OtherSchema),
        ("lost", _) => Some(Answer::Lost { emptied: word(1) == "absent" }),
        ("held", _) => Some(Answer::Held(Duration::from_millis(word(1).parse().ok()?))),
        ("ok", Request::Acquire) => {
            let found = word(1).parse().ok().zip(word(2).parse().ok());
            Some(Answer::Acquired(found))
        }
        ("ok", Request::Heartbeat { .. }) => Some(Answer::Beaten(Beaten {
            first: StreamId::parse(word(1)),
            last: StreamId::parse(word(4)),
            length: word(2).parse().ok()?,
            now: word(3).parse().ok()?,
        })),
        ("ok", Request::Delta { .. }) if words.len() > 2 => Some(Answer::Added {
            id: StreamId::parse(word(1))?,
            first: StreamId::parse(word(2))?,
            length: word(3).parse().ok()?,
        }),
        ("ok", Request::Commit(_) | Request::Delta { .. }) => {
            Some(Answer::Done(Some(StreamId::parse(word(1))?)))
        }
        ("ok", _) => Some(Answer::Done(None)),
        _ => None,
    }
}

/// What a store is called that has no name: another one each time, so that an emptied store gets another name.
fn store_name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn expire(key: &str, ms: u64) -> Cmd {
    let mut cmd = redis::cmd("PEXPIRE");
    cmd.arg(key).arg(ms);
    cmd
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
