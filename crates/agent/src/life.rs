//! Which life of the engine is this?
//!
//! Routers drop what they believe of a rank at once when its *incarnation* changes, and go on serving it while only the
//! agent is new. So the incarnation must change when the engine restarts, and must not when the agent does. The engine's
//! HTTP server can tell when its process was started; that time outlives us. Where it does not tell, restarts that the
//! feed notices are counted.
//!
//! Every new connection to the engine, and every restart that the feed notices, opens the question anew. It is settled
//! when both have spoken: the *witness*, who asked the engine, and the *feed*, which has verified its view against the
//! engine or built it anew. Until then there is no incarnation, and nothing is served.
//!
//! | the witness says | the feed says | the incarnation |
//! |---|---|---|
//! | started when we knew it | the same, or a view built anew | stays |
//! | started when we knew it | restarted | changes |
//! | started at another time | what was held before the connection is gone | changes |
//! | started at another time | the same | the view is voided first, then it changes |
//! | nothing | the same | stays |
//! | nothing | restarted, or a view built anew | changes |
//!
//! **Invariant:** an incarnation is never given to content that was there before a connection whose engine is not known to
//! be the same as before.
//!
//! It reads no clock and no socket; it is told what happens.

use homing_domain::Digest;

/// When the engine's process was started, as it says itself. Only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTime(u64);

impl StartTime {
    /// Seconds of Unix time.
    pub fn from_seconds(seconds: f64) -> Self {
        Self(seconds.to_bits())
    }

    #[cfg(test)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// What the engine's HTTP server said about its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Testimony {
    /// When it was.
    Started(StartTime),
    /// Nothing: it does not tell, or is not there.
    Silent,
}

/// Names one question to the witness. Answers to any but the newest do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question(u64);

/// Whether the view held something when a connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It did.
    Something,
    /// It was empty: whatever is there now came over this connection.
    Nothing,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing changed.
    Nothing,
    /// There is an incarnation now, or another.
    Settled,
    /// The feed must be told that the engine lives anew: its view is of another life.
    Renew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
}

/// How far the question is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The feed has not spoken.
    Open,
    /// It has verified its view, or built it.
    Verified,
    /// The feed is to void its view, and has not done so yet.
    Renewing,
    /// The last settlement holds.
    Settled,
}

/// All that is known of an engine's lives.
#[derive(Debug)]
pub struct Life {
    link: Link,
    /// The newest question; `None` before the first connection.
    question: Option<Question>,
    /// The answer to it.
    testimony: Option<Testimony>,
    stage: Stage,
    /// Whether all that the view holds came over the present connection.
    is_renewed: bool,
    /// Whether the feed noticed a restart since the last settlement.
    is_restarted: bool,
    /// Restarts that the feed has counted.
    restarts: u64,
    /// What the engine last said about its start.
    started: Option<StartTime>,
    /// Restarts of the engine that was started then, as far as only the feed noticed.
    further: u64,
    /// Lives of which the engine did not tell when they began.
    untold: u64,
    /// The last settlement.
    last: Option<u64>,
}

impl Life {
    pub(crate) const VERIFYING: &str = "its view is being verified against the engine or built anew";
    pub(crate) const ASKING: &str = "the engine is being asked when it was started";

    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            link: Link::Down,
            question: None,
            testimony: None,
            stage: Stage::Open,
            is_renewed: true,
            is_restarted: false,
            restarts: 0,
            started: None,
            further: 0,
            untold: 0,
            last: None,
        }
    }

    /// Which life it is, if that is known.
    pub fn incarnation(&self) -> Option<u64> {
        self.last.filter(|_| self.stage == Stage::Settled)
    }

    /// The question that is open, if one is: for the witness.
    pub fn question(&self) -> Option<Question> {
        self.question.filter(|_| self.link == Link::Up)
    }

    /// Why there is no incarnation, in words.
    pub fn words(&self) -> &'static str {
        match (self.link, self.stage) {
            (Link::Down, _) => "there is no connection to the engine's events",
            (Link::Up, Stage::Open | Stage::Renewing) => Self::VERIFYING,
            (Link::Up, Stage::Verified | Stage::Settled) => Self::ASKING,
        }
    }

    /// A connection to the engine stands.
    pub fn connected(&mut self, before: Before) {
        self.link = Link::Up;
        self.is_renewed = before == Before::Nothing;
        self.open();
    }

    /// There is no connection any more.
    pub fn disconnected(&mut self) {
        self.link = Link::Down;
        self.stage = Stage::Open;
    }

    /// The view was replaced or emptied, and the feed has counted so many restarts.
    pub fn replaced(&mut self, restarts: u64) {
        self.is_renewed = true;
        if restarts > self.restarts {
            self.restarts = restarts;
            self.is_restarted = true;
            self.open();
        }
    }

    /// The feed has verified its view, or built it.
    pub fn verified(&mut self) -> Outcome {
        if (self.link, self.stage) != (Link::Up, Stage::Open) {
            return Outcome::Nothing;
        }
        self.stage = Stage::Verified;
        self.settle()
    }

    /// The witness answers. It may do so again when it learns more.
    pub fn testified(&mut self, question: Question, testimony: Testimony) -> Outcome {
        let is_new = self.testimony != Some(testimony) && self.testimony.is_none_or(|old| old == Testimony::Silent);
        if self.question() != Some(question) || !is_new {
            return Outcome::Nothing;
        }
        self.testimony = Some(testimony);
        self.settle()
    }

    fn open(&mut self) {
        self.question = Some(Question(self.question.map_or(0, |Question(number)| number + 1)));
        self.testimony = None;
        self.stage = Stage::Open;
    }

    fn settle(&mut self) -> Outcome {
        let (Some(testimony), Stage::Verified | Stage::Settled) = (self.testimony, self.stage) else {
            return Outcome::Nothing;
        };
        let incarnation = match (testimony, self.started, self.last) {
            (Testimony::Started(now), Some(known), _) if now == known => {
                self.further += u64::from(self.is_restarted);
                told(now, self.further)
            }
            (Testimony::Started(_), Some(_), _) if !self.is_renewed => {
                self.stage = Stage::Renewing;
                return Outcome::Renew;
            }
            (Testimony::Started(now), _, _) => {
                self.started = Some(now);
                self.further = 0;
                told(now, 0)
            }
            (Testimony::Silent, _, None) => untold(0),
            (Testimony::Silent, _, Some(last)) if !self.is_renewed => last,
            (Testimony::Silent, _, Some(_)) => {
                self.untold += 1;
                untold(self.untold)
            }
        };
        self.is_restarted = false;
        let is_other = self.incarnation() != Some(incarnation);
        self.last = Some(incarnation);
        self.stage = Stage::Settled;
        if is_other { Outcome::Settled } else { Outcome::Nothing }
    }
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

fn told(started: StartTime, further: u64) -> u64 {
    hashed(1, started.0, further)
}

/// The first of these is the same for every agent, so that it outlives one.
fn untold(lives: u64) -> u64 {
    hashed(2, 0, lives)
}

fn hashed(kind: u8, start: u64, lives: u64) -> u64 {
    let mut bytes = vec![kind];
    bytes.extend(start.to_le_bytes());
    bytes.extend(lives.to_le_bytes());
    Digest::of(&bytes).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Testimony = Testimony::Started(StartTime(1));
    const B: Testimony = Testimony::Started(StartTime(2));

    /// A connection that is verified, and the witness says this.
    fn settled(life: &mut Life, before: Before, testimony: Testimony) -> u64 {
        life.connected(before);
        answer(life, testimony)
    }

    fn answer(life: &mut Life, testimony: Testimony) -> u64 {
        assert_eq!(life.incarnation(), None);
        assert_eq!(life.verified(), Outcome::Nothing, "the witness has not spoken");
        let question = life.question().unwrap();
        assert_eq!(life.testified(question, testimony), Outcome::Settled);
        life.incarnation().unwrap()
    }

    #[test]
    fn it_outlives_the_agent_and_not_the_engine() {
        let first = settled(&mut Life::new(), Before::Nothing, A);
        let mut life = Life::new();
        assert_eq!(settled(&mut life, Before::Nothing, A), first);
        life.disconnected();
        assert_eq!(life.incarnation(), None);
        assert_eq!(settled(&mut life, Before::Something, A), first);
        life.disconnected();
        life.connected(Before::Something);
        life.replaced(1);
        let second = answer(&mut life, B);
        assert_ne!(second, first);
        assert_eq!(settled(&mut Life::new(), Before::Nothing, B), second);
    }

    #[test]
    fn a_restart_that_only_the_feed_notices_counts() {
        let mut life = Life::new();
        let first = settled(&mut life, Before::Nothing, A);
        life.replaced(0);
        assert_eq!(life.incarnation(), Some(first), "a view built anew is no restart");
        life.replaced(1);
        let second = answer(&mut life, A);
        assert_ne!(second, first);
        life.disconnected();
        assert_eq!(settled(&mut life, Before::Something, A), second);
    }

    #[test]
    fn a_restart_that_only_the_witness_notices_voids_the_view_first() {
        let mut life = Life::new();
        let first = settled(&mut life, Before::Nothing, A);
        life.disconnected();
        life.connected(Before::Something);
        assert_eq!(life.verified(), Outcome::Nothing);
        let question = life.question().unwrap();
        assert_eq!(life.testified(question, B), Outcome::Renew);
        assert_eq!(life.verified(), Outcome::Nothing, "it is said once");
        assert_eq!(life.incarnation(), None);
        life.replaced(1);
        assert_eq!(
            life.testified(question, A),
            Outcome::Nothing,
            "an answer to an old question"
        );
        assert_ne!(answer(&mut life, B), first);
    }

    #[test]
    fn what_came_over_the_connection_is_not_voided() {
        let mut life = Life::new();
        let first = settled(&mut life, Before::Nothing, A);
        life.disconnected();
        assert_ne!(settled(&mut life, Before::Nothing, B), first);
    }

    #[test]
    fn engines_that_do_not_tell_are_counted() {
        let mut life = Life::new();
        let first = settled(&mut life, Before::Nothing, Testimony::Silent);
        assert_eq!(settled(&mut Life::new(), Before::Nothing, Testimony::Silent), first);
        life.disconnected();
        assert_eq!(settled(&mut life, Before::Something, Testimony::Silent), first);
        life.disconnected();
        life.connected(Before::Something);
        life.replaced(0);
        let second = answer(&mut life, Testimony::Silent);
        assert_ne!(second, first);
        life.replaced(1);
        let third = answer(&mut life, Testimony::Silent);
        assert!(third != second && third != first);
    }

    #[test]
    fn a_late_word_of_the_engine_is_believed() {
        let mut life = Life::new();
        let silent = settled(&mut life, Before::Nothing, Testimony::Silent);
        let question = life.question().unwrap();
        assert_eq!(life.testified(question, Testimony::Silent), Outcome::Nothing);
        assert_eq!(life.testified(question, A), Outcome::Settled);
        assert_ne!(life.incarnation(), Some(silent));
        assert_eq!(life.testified(question, B), Outcome::Nothing, "once is enough");
        life.disconnected();
        assert_eq!(life.testified(question, A), Outcome::Nothing);
    }
}
