//! Reads, writes and swaps of one register take effect one after the other, each between its call
//! and its answer.
//!
//! Searched for without a word from the server: no revision is trusted. Every value is written once.
//!
//! A call of unknown outcome may have happened or not. If nobody ever saw its value it may as well
//! not have happened: whoever looked while it was there would have seen it, and leaving it out
//! changes nothing for anybody else. If somebody did, it happened before that one was answered.
//!
//! Where at some moment no call is open, the history is cut; the values possible there begin the
//! next piece. Within a piece, orders are tried depth first, and what was tried is remembered. A
//! read that fits is always taken first: it changes nothing, so no order is lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// A register's value; none before the first write.
pub type Value = Option<u64>;

/// What one call did, or would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Showed this value.
    Read(Value),
    /// Set this value.
    Write(u64),
    /// Set a value because the old one was there.
    Swap {
        /// The old one.
        from: Value,
        /// The new one.
        to: u64,
    },
    /// Set nothing, because another value than the one expected was there.
    Refused {
        /// What was expected.
        from: Value,
        /// What was there.
        saw: Value,
    },
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Who called.
    pub client: usize,
    /// Who was asked.
    pub member: usize,
    /// When it was sent.
    pub invoked: Duration,
    /// When it was answered; none if its outcome is unknown.
    pub returned: Option<Duration>,
    /// What it did.
    pub step: Step,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Where no order exists.
    pub findings: Vec<String>,
    /// Calls that have their place in an order.
    pub judged: u64,
    /// Calls about which nothing was decided, because there were too many orders to try.
    pub undecided: u64,
}

/// Orders tried in one piece before it is given up.
pub const TRIES_MAX: usize = 2_000_000;

/// Judges the calls on one register that was not there at first.
pub fn check(ops: &[Op], tries_max: usize) -> Judgement {
    let closed = close(ops);
    let mut judgement = Judgement::default();
    let mut values: BTreeSet<Value> = BTreeSet::from([None]);
    for piece in pieces(&closed) {
        match search(piece, &values, tries_max) {
            Found::Ends(ends) => {
                judgement.judged += piece.len() as u64;
                values = ends;
            }
            Found::None(why) => {
                judgement.findings.push(why);
                // What follows is judged from any value that was ever there, or is an echo.
                values = any_value(piece, &values);
            }
            Found::TooMany => {
                judgement.undecided += piece.len() as u64;
                values = any_value(piece, &values);
            }
        }
    }
    judgement
}

/// A call whose end is known.
#[derive(Clone, Copy, Debug)]
struct Closed {
    op: Op,
    returned: Duration,
}

/// Leaves out calls that nobody can tell from calls that never happened, and gives the others of
/// unknown outcome the end that whoever saw them proves; all in the order of their calls.
fn close(ops: &[Op]) -> Vec<Closed> {
    let mut seen: HashMap<u64, Duration> = HashMap::new();
    let see = |seen: &mut HashMap<u64, Duration>, value: Value, by: Duration| -> bool {
        let Some(value) = value else { return false };
        match seen.get(&value) {
            Some(known) if *known <= by => false,
            _ => seen.insert(value, by) != Some(by),
        }
    };
    for op in ops {
        if let (Some(returned), Some(value)) = (op.returned, shown(op.step)) {
            see(&mut seen, value, returned);
        }
    }
    // A swap that was seen has itself seen the value before it.
    loop {
        let mut more = false;
        for op in ops.iter().filter(|op| op.returned.is_none()) {
            if let Step::Swap { from, to } = op.step
                && let Some(by) = seen.get(&to).copied()
            {
                more |= see(&mut seen, from, by);
            }
        }
        if !more {
            break;
        }
    }
    let end = |op: &Op| match (op.returned, op.step) {
        (Some(returned), _) => Some(returned),
        (None, Step::Write(value) | Step::Swap { to: value, .. }) => seen.get(&value).copied(),
        (None, Step::Read(_) | Step::Refused { .. }) => None,
    };
    let mut closed: Vec<Closed> =
        ops.iter().filter_map(|op| Some(Closed { op: *op, returned: end(op)? })).collect();
    closed.sort_by_key(|one| (one.op.invoked, one.returned));
    closed
}

/// The value that an answered call saw, if it saw one.
fn shown(step: Step) -> Option<Value> {
    match step {
        Step::Read(value) | Step::Swap { from: value, .. } | Step::Refused { saw: value, .. } => Some(value),
        Step::Write(_) => None,
    }
}

/// Cuts at moments in which no call is open.
fn pieces(ops: &[Closed]) -> Vec<&[Closed]> {
    let mut pieces = Vec::new();
    let mut first = 0;
    let mut open_until = Duration::ZERO;
    for (at, one) in ops.iter().enumerate() {
        if first < at && open_until < one.op.invoked {
            pieces.push(&ops[first..at]);
            first = at;
        }
        open_until = open_until.max(one.returned);
    }
    if first < ops.len() {
        pieces.push(&ops[first..]);
    }
    pieces
}

fn any_value(piece: &[Closed], before: &BTreeSet<Value>) -> BTreeSet<Value> {
    let set = piece.iter().filter_map(|one| match one.op.step {
        Step::Write(value) | Step::Swap { to: value, .. } => Some(Some(value)),
        Step::Read(_) | Step::Refused { .. } => None,
    });
    set.chain(before.iter().copied()).collect()
}

enum Found {
    /// There is an order; the values with which one can end.
    Ends(BTreeSet<Value>),
    /// There is none.
    None(String),
    /// Not known.
    TooMany,
}

/// Some calls in some order: all before `base`, and these beyond it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tried {
    base: usize,
    beyond: Vec<usize>,
    value: Value,
}

impl Tried {
    fn len(&self) -> usize {
        self.base + self.beyond.len()
    }

    fn has(&self, at: usize) -> bool {
        at < self.base || self.beyond.binary_search(&at).is_ok()
    }

    fn with(&self, at: usize, value: Value) -> Self {
        let mut beyond = self.beyond.clone();
        if let Err(place) = beyond.binary_search(&at) {
            beyond.insert(place, at);
        }
        let mut base = self.base;
        while beyond.first() == Some(&base) {
            beyond.remove(0);
            base += 1;
        }
        Self { base, beyond, value }
    }
}

fn search(piece: &[Closed], begin: &BTreeSet<Value>, tries_max: usize) -> Found {
    let mut stack: Vec<Tried> =
        begin.iter().map(|value| Tried { base: 0, beyond: Vec::new(), value: *value }).collect();
    let mut known: HashSet<Tried> = stack.iter().cloned().collect();
    let mut ends = BTreeSet::new();
    let mut deepest: Option<Tried> = None;
    while let Some(tried) = stack.pop() {
        if tried.len() == piece.len() {
            ends.insert(tried.value);
            continue;
        }
        let next = next_of(piece, &tried);
        if next.is_empty() && deepest.as_ref().is_none_or(|deepest| deepest.len() < tried.len()) {
            deepest = Some(tried);
        }
        for one in next {
            if known.insert(one.clone()) {
                stack.push(one);
            }
        }
        if tries_max < known.len() {
            return Found::TooMany;
        }
    }
    match deepest {
        _ if !ends.is_empty() => Found::Ends(ends),
        Some(deepest) => Found::None(explain(piece, &deepest)),
        None => Found::None("no value to begin with".to_owned()),
    }
}

/// The calls that may come next: none of those left was answered before they were sent.
fn open(piece: &[Closed], tried: &Tried) -> Vec<usize> {
    let mut answered = Duration::MAX;
    let mut open = Vec::new();
    for (at, one) in piece.iter().enumerate().skip(tried.base) {
        if tried.has(at) {
            continue;
        }
        if answered < one.op.invoked {
            break;
        }
        answered = answered.min(one.returned);
        open.push(at);
    }
    // Sent before the first answer that was known then, but after one found later.
    open.retain(|at| piece[*at].op.invoked <= answered);
    open
}

fn next_of(piece: &[Closed], tried: &Tried) -> Vec<Tried> {
    let mut next = Vec::new();
    for at in open(piece, tried) {
        match after(piece[at].op.step, tried.value) {
            Some(value) if value == tried.value => return vec![tried.with(at, value)],
            Some(value) => next.push(tried.with(at, value)),
            None => {}
        }
    }
    next
}

/// The value after a step; none if it cannot be taken from this value.
fn after(step: Step, value: Value) -> Option<Value> {
    match step {
        Step::Read(shown) => (shown == value).then_some(value),
        Step::Write(new) => Some(Some(new)),
        Step::Swap { from, to } => (from == value).then_some(Some(to)),
        Step::Refused { from, saw } => (saw == value && saw != from).then_some(value),
    }
}

fn explain(piece: &[Closed], tried: &Tried) -> String {
    let stuck: Vec<String> =
        open(piece, tried).into_iter().take(6).map(|at| format!("{:?}", piece[at].op)).collect();
    format!(
        "no order: after {} of {} calls from {:?} on, with {:?} in the register, none of these can be next: {}",
        tried.len(),
        piece.len(),
        piece.first().map(|one| one.op.invoked).unwrap_or_default(),
        tried.value,
        stuck.join("; ")
    )
}

#[cfg(test)]
mod tests;
