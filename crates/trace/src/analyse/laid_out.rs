//! When would the requests of sessions arrive, if each request took a time that is known beforehand?
//!
//! A request that follows another comes after that one ended and its client thought. Where nothing serves a trace, somebody has to say
//! how long requests take; a guess is good enough to know which of them come between two others.
//!
//! **Invariant:** requests are in order of their arrivals, each arrives at a moment ([`Arrival::At`]), and without sessions nothing is
//! changed.

use homing_profile::Millis;

use super::MAX_CONVERSATIONS;
use crate::agenda::{Agenda, AgendaError};
use crate::error::{Problem, TraceError};
use crate::request::{Arrival, Request};
use crate::transform::Traffic;

/// The requests of a trace as they would arrive if each took as long as `taking` says.
pub fn laid_out<I, F>(traffic: I, taking: F) -> LaidOut<I, F>
where
    I: Traffic,
    F: FnMut(&Request) -> Millis,
{
    LaidOut {
        agenda: Agenda::new(traffic, MAX_WAITING),
        taking,
    }
}

/// The most requests that wait for others of their sessions: 16 of each session that an analysis follows.
const MAX_WAITING: usize = MAX_CONVERSATIONS * 16;

/// See [`laid_out`].
#[derive(Debug)]
pub struct LaidOut<I, F> {
    agenda: Agenda<I>,
    taking: F,
}

impl<I, F> Iterator for LaidOut<I, F>
where
    I: Traffic,
    F: FnMut(&Request) -> Millis,
{
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, mut request) = match self.agenda.pop() {
            Ok(popped) => popped?,
            Err(AgendaError::Trace(error)) => return Some(Err(error)),
            Err(AgendaError::TooManyWait { limit }) => {
                return Some(Err(TraceError {
                    label: "trace".into(),
                    line: 0,
                    problem: Problem::TooManyWait { limit },
                }));
            }
        };
        if let Some(session) = request.session {
            self.agenda.ended(session, at + (self.taking)(&request));
        }
        request.arrival = Arrival::At(at);
        Some(Ok(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Prompt;
    use crate::request::SessionId;
    use homing_domain::Tokens;
    use homing_profile::Time;

    fn at(seconds: u32) -> Time {
        Time::from_millis(f64::from(seconds) * 1e3)
    }

    fn turn(session: u64, number: u32, begun: u32, think: Option<u32>) -> Request {
        Request {
            arrival: think.map_or(Arrival::At(at(begun)), |think| Arrival::Follows {
                earliest: at(begun),
                think: Millis(f64::from(think) * 1e3),
            }),
            session: Some(SessionId::numbered(session)),
            ..Request::at(Time::ZERO, Prompt::fresh([]), Tokens(number))
        }
    }

    #[test]
    fn turns_of_sessions_come_between_each_other() {
        // As generators write them: each session as a whole, from its beginning on.
        let trace = vec![
            turn(1, 10, 0, None),
            turn(1, 11, 0, Some(30)),
            turn(1, 12, 0, Some(30)),
            turn(2, 20, 5, None),
            turn(2, 21, 5, Some(2)),
        ];
        let taking = |request: &Request| Millis(f64::from(request.output.0) * 100.0);
        let laid = laid_out(trace.into_iter().map(Ok), taking).map(Result::unwrap);
        let laid: Vec<_> = laid.map(|request| (request.output.0, request.arrival)).collect();
        let moment = |ms: f64| Arrival::At(Time::from_millis(ms));
        assert_eq!(
            laid,
            [
                (10, moment(0.0)),
                (20, moment(5_000.0)),
                (21, moment(9_000.0)),
                (11, moment(31_000.0)),
                (12, moment(62_100.0)),
            ]
        );
    }
}
