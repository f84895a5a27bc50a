//! Who writes the requests of each workload.

use rand::RngExt as _;
use rand::rngs::StdRng;
use smallvec::{SmallVec, smallvec};

use super::chance::{Lengths, Zipf};
use super::{Author, Demand, Draft, Workload};
use crate::clock::{Nanos, nanos};
use crate::trace::{Segment, mix};

/// The author of `workload`, with a population that makes the KV demand.
pub(super) fn author(workload: Workload, demand: &Demand, rng: &mut StdRng) -> Box<dyn Author> {
    let wanted = (demand.kv_demand * demand.fleet_tokens as f64) as u64;
    let base = rng.random::<u64>();
    let scale = demand.length_scale;
    match workload {
        Workload::SystemFew => {
            let groups = (demand.pods as usize / 2).max(2);
            let kind = GroupKind { prefix: FEW_PREFIX, question: SMALL_QUESTION, ..MANY };
            Box::new(Groups::new(kind, Size::Groups(groups), base, scale, rng))
        }
        Workload::SystemMany => Box::new(Groups::new(MANY, Size::Tokens(wanted), base, scale, rng)),
        Workload::Bursts => Box::new(Groups::new(CROWDS, Size::Tokens(wanted), base, scale, rng)),
        Workload::Documents => {
            // The longest one must fit beside others.
            let most = DOCUMENT.most.min(demand.pod_tokens as f64 / 6.0 / scale);
            let kind = GroupKind {
                prefix: Lengths { most, least: DOCUMENT.least.min(most), ..DOCUMENT },
                ..DOCUMENTS
            };
            Box::new(Groups::new(kind, Size::Tokens(wanted), base, scale, rng))
        }
        Workload::Chat => Box::new(Talks::new(CHAT, wanted, base, scale, rng)),
        Workload::Agents => Box::new(Talks::new(AGENTS, wanted, base, scale, rng)),
        Workload::Short => Box::new(Strangers { base, scale, written: 0 }),
        Workload::Mixed => Box::new(Mix::new(demand, rng)),
    }
}

/// Requests over shared prefixes.
#[derive(Clone, Copy, Debug)]
struct GroupKind {
    prefix: Lengths,
    question: Lengths,
    answer: Lengths,
    zipf: f64,
    /// Share of arrivals that are a crowd, and its size at most.
    crowds: f64,
    crowd: u32,
}

const FEW_PREFIX: Lengths = Lengths { median: 4000.0, deviation: 0.0, least: 1.0, most: 4000.0 };
const SMALL_QUESTION: Lengths = Lengths { median: 300.0, deviation: 0.8, least: 20.0, most: 2000.0 };
const DOCUMENT: Lengths = Lengths { median: 14_000.0, deviation: 0.5, least: 6000.0, most: 32_000.0 };
const USUAL_ANSWER: Lengths = Lengths { median: 150.0, deviation: 0.6, least: 8.0, most: 800.0 };

const MANY: GroupKind = GroupKind {
    prefix: Lengths { median: 6000.0, deviation: 0.0, least: 1.0, most: 6000.0 },
    question: Lengths { median: 1200.0, deviation: 0.3, least: 200.0, most: 4000.0 },
    answer: USUAL_ANSWER,
    zipf: 0.8,
    crowds: 0.0,
    crowd: 1,
};

const CROWDS: GroupKind = GroupKind {
    prefix: Lengths { median: 3000.0, deviation: 0.3, least: 1000.0, most: 8000.0 },
    question: SMALL_QUESTION,
    answer: Lengths { median: 100.0, deviation: 0.6, least: 8.0, most: 500.0 },
    zipf: 0.6,
    crowds: 0.1,
    crowd: 24,
};

const DOCUMENTS: GroupKind = GroupKind {
    prefix: DOCUMENT,
    question: Lengths { median: 60.0, deviation: 0.5, least: 10.0, most: 300.0 },
    answer: USUAL_ANSWER,
    zipf: 0.9,
    crowds: 0.0,
    crowd: 1,
};

/// How many groups there are.
#[derive(Clone, Copy, Debug)]
enum Size {
    Groups(usize),
    Tokens(u64),
}

/// Groups of users with a common prefix.
struct Groups {
    kind: GroupKind,
    prefixes: Vec<Segment>,
    popularity: Zipf,
    base: u64,
    scale: f64,
    written: u64,
}

impl Groups {
    fn new(kind: GroupKind, size: Size, base: u64, scale: f64, rng: &mut StdRng) -> Self {
        let mut prefixes: Vec<Segment> = Vec::new();
        let mut tokens = 0;
        loop {
            let enough = match size {
                Size::Groups(groups) => prefixes.len() >= groups,
                Size::Tokens(wanted) => tokens >= wanted && prefixes.len() > 1,
            };
            if enough {
                break;
            }
            let prefix =
                Segment { seed: mix(base ^ prefixes.len() as u64), tokens: kind.prefix.draw(scale, rng) };
            tokens += u64::from(prefix.tokens);
            prefixes.push(prefix);
        }
        let popularity = Zipf::new(prefixes.len(), kind.zipf);
        Self { kind, prefixes, popularity, base: mix(base), scale, written: 0 }
    }

    fn one(&mut self, group: usize, offset: Nanos, rng: &mut StdRng) -> Draft {
        self.written += 1;
        let seed = mix(self.base ^ self.written);
        let question = Segment { seed, tokens: self.kind.question.draw(self.scale, rng) };
        let answer = Segment { seed: mix(seed), tokens: self.kind.answer.draw(self.scale, rng) };
        Draft {
            offset,
            prompt: smallvec![self.prefixes[group], question],
            answer,
            session: self.base ^ group as u64,
            after: None,
        }
    }
}

impl Author for Groups {
    fn working_set(&self) -> u64 {
        self.prefixes.iter().map(|prefix| u64::from(prefix.tokens)).sum()
    }

    fn volley(&mut self, _: u32, rng: &mut StdRng) -> Vec<Draft> {
        let group = self.popularity.pick(rng);
        let crowd = rng.random::<f64>() < self.kind.crowds;
        let size = if crowd { rng.random_range(self.kind.crowd / 3..=self.kind.crowd) } else { 1 };
        (0..size)
            .map(|_| {
                let offset = if crowd { nanos(0.5 * rng.random::<f64>()) } else { 0 };
                self.one(group, offset, rng)
            })
            .collect()
    }
}

/// Conversations and tasks: each request continues what was said before.
#[derive(Clone, Copy, Debug)]
struct TalkKind {
    system_prompts: u64,
    system: Lengths,
    opening: Lengths,
    turn: Lengths,
    answer: Lengths,
    /// Mean number of turns.
    turns: f64,
    most_turns: u32,
    zipf: f64,
    /// Share of turns that branch, and into how many at most.
    branching: f64,
    branches: u32,
}

const CHAT: TalkKind = TalkKind {
    system_prompts: 4,
    system: Lengths { median: 800.0, deviation: 0.0, least: 1.0, most: 800.0 },
    opening: Lengths { median: 250.0, deviation: 0.8, least: 20.0, most: 3000.0 },
    turn: Lengths { median: 180.0, deviation: 0.8, least: 10.0, most: 2000.0 },
    answer: Lengths { median: 220.0, deviation: 0.6, least: 16.0, most: 1000.0 },
    turns: 8.0,
    most_turns: 24,
    zipf: 0.5,
    branching: 0.0,
    branches: 1,
};

const AGENTS: TalkKind = TalkKind {
    system_prompts: 6,
    system: Lengths { median: 3000.0, deviation: 0.0, least: 1.0, most: 3000.0 },
    opening: Lengths { median: 1500.0, deviation: 0.6, least: 200.0, most: 8000.0 },
    turn: Lengths { median: 350.0, deviation: 0.8, least: 30.0, most: 3000.0 },
    answer: Lengths { median: 100.0, deviation: 0.6, least: 16.0, most: 500.0 },
    turns: 10.0,
    most_turns: 24,
    zipf: 0.5,
    branching: 0.5,
    branches: 6,
};

/// One conversation.
#[derive(Clone, Debug)]
struct Talk {
    id: u64,
    /// What was said so far.
    said: SmallVec<[Segment; 4]>,
    turns: u32,
    /// The request whose answer is the last thing said.
    last: Option<u32>,
}

impl Talk {
    fn tokens(&self) -> u64 {
        self.said.iter().map(|segment| u64::from(segment.tokens)).sum()
    }
}

struct Talks {
    kind: TalkKind,
    talks: Vec<Talk>,
    popularity: Zipf,
    base: u64,
    scale: f64,
    begun: u64,
    written: u64,
    working_set: u64,
}

impl Talks {
    fn new(kind: TalkKind, wanted: u64, base: u64, scale: f64, rng: &mut StdRng) -> Self {
        let mut author = Self {
            kind,
            talks: Vec::new(),
            popularity: Zipf::new(1, kind.zipf),
            base,
            scale,
            begun: 0,
            written: 0,
            working_set: 0,
        };
        while author.working_set < wanted || author.talks.len() < 2 {
            let mut talk = author.begin(rng);
            // They are met in the middle of what they do.
            while !author.is_over(&talk, rng) {
                let (turn, answer) = author.turn(rng);
                talk.said.extend([turn, answer]);
                talk.turns += 1;
            }
            author.working_set += talk.tokens();
            author.talks.push(talk);
        }
        author.popularity = Zipf::new(author.talks.len(), kind.zipf);
        author
    }

    fn begin(&mut self, rng: &mut StdRng) -> Talk {
        self.begun += 1;
        let id = mix(self.base ^ self.begun);
        let system = rng.random_range(0..self.kind.system_prompts);
        let first = Segment {
            seed: mix(self.base.rotate_left(17) ^ system),
            tokens: self.kind.system.draw(self.scale, rng),
        };
        let opening = Segment { seed: mix(id ^ 1), tokens: self.kind.opening.draw(self.scale, rng) };
        Talk { id, said: smallvec![first, opening], turns: 0, last: None }
    }

    fn is_over(&self, talk: &Talk, rng: &mut StdRng) -> bool {
        talk.turns >= self.kind.most_turns || rng.random::<f64>() < 1.0 / self.kind.turns
    }

    /// What a client says next and what is answered.
    fn turn(&mut self, rng: &mut StdRng) -> (Segment, Segment) {
        self.written += 1;
        let seed = mix(self.base.rotate_left(31) ^ self.written);
        (
            Segment { seed, tokens: self.kind.turn.draw(self.scale, rng) },
            Segment { seed: mix(seed ^ 2), tokens: self.kind.answer.draw(self.scale, rng) },
        )
    }
}

impl Author for Talks {
    fn working_set(&self) -> u64 {
        self.working_set
    }

    fn volley(&mut self, number: u32, rng: &mut StdRng) -> Vec<Draft> {
        let at = self.popularity.pick(rng);
        let over = self.talks[at].turns > 0 && {
            let talk = self.talks[at].clone();
            self.is_over(&talk, rng)
        };
        if over {
            self.talks[at] = self.begin(rng);
        }
        let branches = if rng.random::<f64>() < self.kind.branching {
            rng.random_range(2..=self.kind.branches)
        } else {
            1
        };
        let turns: Vec<(Segment, Segment)> = (0..branches).map(|_| self.turn(rng)).collect();
        let talk = &mut self.talks[at];
        let drafts = turns
            .iter()
            .map(|(turn, answer)| Draft {
                offset: nanos(0.02 * rng.random::<f64>() * f64::from(branches - 1)),
                prompt: talk.said.iter().copied().chain([*turn]).collect(),
                answer: *answer,
                session: talk.id,
                after: talk.last,
            })
            .collect();
        // The first branch is the one that was worth following.
        talk.said.extend([turns[0].0, turns[0].1]);
        talk.turns += 1;
        talk.last = Some(number);
        drafts
    }
}

/// Short prompts without anything in common.
struct Strangers {
    base: u64,
    scale: f64,
    written: u64,
}

const SHORT_PROMPT: Lengths = Lengths { median: 80.0, deviation: 0.7, least: 10.0, most: 400.0 };

impl Author for Strangers {
    fn working_set(&self) -> u64 {
        0
    }

    fn volley(&mut self, _: u32, rng: &mut StdRng) -> Vec<Draft> {
        self.written += 1;
        let seed = mix(self.base ^ self.written);
        let prompt = Segment { seed, tokens: SHORT_PROMPT.draw(self.scale, rng) };
        let answer = Segment { seed: mix(seed), tokens: USUAL_ANSWER.draw(self.scale, rng) };
        vec![Draft { offset: 0, prompt: smallvec![prompt], answer, session: seed, after: None }]
    }
}

/// Several authors, each with its share of the arrivals.
struct Mix {
    authors: Vec<(f64, Box<dyn Author>)>,
}

impl Mix {
    fn new(demand: &Demand, rng: &mut StdRng) -> Self {
        let parts = [
            (0.50, 0.45, Workload::Chat),
            (0.20, 0.00, Workload::Short),
            (0.10, 0.15, Workload::SystemMany),
            (0.12, 0.20, Workload::Agents),
            (0.08, 0.20, Workload::Documents),
        ];
        let authors = parts.into_iter().map(|(share, kv, workload)| {
            let part = Demand { kv_demand: demand.kv_demand * kv, ..*demand };
            (share, author(workload, &part, rng))
        });
        Self { authors: authors.collect() }
    }
}

impl Author for Mix {
    fn working_set(&self) -> u64 {
        self.authors.iter().map(|(_, author)| author.working_set()).sum()
    }

    fn volley(&mut self, number: u32, rng: &mut StdRng) -> Vec<Draft> {
        let mut wanted: f64 = rng.random();
        for (share, author) in &mut self.authors {
            wanted -= *share;
            if wanted <= 0.0 {
                return author.volley(number, rng);
            }
        }
        self.authors.last_mut().map(|(_, author)| author.volley(number, rng)).unwrap_or_default()
    }
}
