//! How busy does a worker say it is?

use homing_domain::DpRank;
use homing_load::Report;

/// How busy one rank is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankLoad {
    /// Which.
    pub dp: DpRank,
    /// What it said; `at` is when it was asked, so that it is never taken for newer than it is.
    pub report: Report,
    /// The share of its cache that is in use, from 0 to 1, where it says so.
    pub usage: Option<f64>,
}
