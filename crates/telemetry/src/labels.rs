//! By what are metrics told apart? Labels with closed lists of values.

use crate::metric::LabelValue;

macro_rules! label {
    ($(#[$meta:meta])* $name:ident = $label:literal { $( $(#[doc = $doc:literal])+ $variant:ident = $value:literal, )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl $name {
            /// All of them, in the order of their label values.
            pub const ALL: [Self; [$( $value ),+].len()] = [$( Self::$variant ),+];
        }

        impl LabelValue for $name {
            const NAME: &'static str = $label;
            const VALUES: &'static [&'static str] = &[$( $value ),+];

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

label!(
    /// What an applied event did.
    Change = "change" {
        /// Blocks came.
        Stored = "stored",
        /// Blocks went.
        Removed = "removed",
        /// A rank, or one of its tiers, was emptied.
        Cleared = "cleared",
    }
);

label!(
    /// Why a source of events is not read for a while.
    ReadLimit = "limit" {
        /// As many batches of the rank as `feed.buffer-batches` allows are on their way, or wait for a repair.
        BufferBatches = "buffer_batches",
        /// As many batches as `events.lane-batches` allows wait to be decoded.
        LaneBatches = "lane_batches",
        /// As many bytes as `events.lane-bytes` allows are on their way.
        LaneBytes = "lane_bytes",
    }
);

impl ReadLimit {
    /// The setting that sets the limit.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::BufferBatches => "feed.buffer-batches",
            Self::LaneBatches => "events.lane-batches",
            Self::LaneBytes => "events.lane-bytes",
        }
    }
}

label!(
    /// A part of the way from a whole request to its decision.
    RoutePart = "part" {
        /// From text to tokens, here or by asking a worker.
        Tokenize = "tokenize",
        /// From tokens to the keys of blocks.
        Keys = "keys",
        /// From keys to what each rank holds.
        Lookup = "lookup",
        /// From that to a decision, or to a place in the queue.
        Decide = "decide",
        /// All of these.
        Total = "total",
    }
);

label!(
    /// For which part of a request a worker is.
    WorkerRole = "role" {
        /// Computes the prompt's KV and hands it over.
        Prefill = "prefill",
        /// Takes KV over and generates.
        Decode = "decode",
        /// Does the whole request.
        Both = "both",
    }
);

label!(
    /// What came of a load or an unload of an adapter.
    AdapterMove = "move" {
        /// It was loaded.
        Loaded = "loaded",
        /// It was to be loaded and was not.
        LoadFailed = "load_failed",
        /// It was unloaded.
        Unloaded = "unloaded",
        /// It was to be unloaded and was not.
        UnloadFailed = "unload_failed",
    }
);

label!(
    /// How much a finding about a worker matters.
    FoundSeverity = "severity" {
        /// Nothing is wrong.
        Note = "note",
        /// Something works less well than it could.
        Warning = "warning",
        /// What Homing is for does not work with this worker.
        Fault = "fault",
    }
);

label!(
    /// How good the view of a rank is.
    ViewState = "state" {
        /// Verified a short while ago and complete.
        Live = "live",
        /// Verified a short while ago; may miss what was cached before we listened.
        Warming = "warming",
        /// Something is missing and is being fetched.
        Repairing = "repairing",
        /// Not verified: it may be wrong.
        Stale = "stale",
    }
);

label!(
    /// What a repair asks the source for.
    RepairKind = "kind" {
        /// The batches from the cursor on.
        Replay = "replay",
        /// All batches that there are.
        Rebuild = "rebuild",
        /// A list of what the rank holds.
        List = "list",
    }
);

label!(
    /// Why an event, or a part of one, was left out of its batch.
    Skip = "reason" {
        /// Its kind is not known.
        UnknownEvent = "unknown_event",
        /// The blocks lie in a place whose name is not known.
        UnknownMedium = "unknown_medium",
        /// The blocks lie at another worker.
        RemoteLocality = "remote_locality",
        /// The cache group keeps only a part of a prefix.
        UnusableGroup = "unusable_group",
        /// The cache group is of a kind that is not known.
        UnknownGroupKind = "unknown_group_kind",
        /// The engine did not say of which kind the cache group is.
        UnlearnedGroup = "unlearned_group",
        /// The block is not full.
        PartialBlock = "partial_block",
        /// The number of tokens is not that of the blocks.
        TokensDoNotFit = "tokens_do_not_fit",
        /// Blocks without their tokens that were not seen before.
        NoTokens = "no_tokens",
        /// The engine's blocks are no multiple of ours.
        BlockSize = "block_size",
        /// A block is split, and it is not told which parts the media touch.
        MediaInSplitBlock = "media_in_split_block",
        /// The block before it was skipped.
        AfterSkipped = "after_skipped",
        /// What is removed had been skipped when it was stored.
        RemovalOfSkipped = "removal_of_skipped",
        /// A field is missing, of another type or out of range.
        BadFields = "bad_fields",
    }
);

label!(
    /// How a request for overlap ended.
    Outcome = "outcome" {
        /// With an answer.
        Answered = "answered",
        /// It could not be understood.
        Malformed = "malformed",
        /// It was longer than is allowed.
        TooLarge = "too_large",
        /// No worker serves its model with its block size.
        UnknownModel = "unknown_model",
        /// It was right, and we failed.
        Failed = "failed",
    }
);

label!(
    /// How a request to the gateway ended.
    RequestEnd = "end" {
        /// It was answered, by an engine or, where no engine is needed, by the gateway.
        Served = "served",
        /// It was wrong.
        Wrong = "wrong",
        /// There was no room for it, or nobody to serve it.
        Refused = "refused",
        /// Every try failed, or its answer broke off.
        Failed = "failed",
        /// The client went away.
        Cancelled = "cancelled",
    }
);

label!(
    /// Why a try of a request failed.
    TryFailure = "why" {
        /// The worker could not be connected to.
        Connect = "connect",
        /// It answered with a status of 500 or above.
        Status = "status",
        /// It took the request, and nothing came in time.
        Silent = "silent",
        /// Its answer broke off.
        Broken = "broken",
        /// It was not to be asked at that moment.
        Closed = "closed",
        /// It does not have the adapter that it was thought to have.
        NoAdapter = "no_adapter",
        /// It was ejected because it makes no progress, and the request was moved.
        Stalled = "stalled",
        /// It went down while the request waited, and the request was moved.
        Down = "down",
    }
);

label!(
    /// Which part of a request a worker was asked for, where two may serve it.
    LegKind = "leg" {
        /// All of it.
        Whole = "whole",
        /// Its prompt.
        Prefill = "prefill",
        /// Its answer.
        Decode = "decode",
        /// KV that nobody waited for any more, so that it is let go.
        Fetch = "fetch",
    }
);

label!(
    /// What came of a leg.
    LegEnd = "end" {
        /// An answer.
        Answered = "answered",
        /// None.
        Failed = "failed",
    }
);

label!(
    /// What became of KV that was computed for another worker.
    HandoffFate = "fate" {
        /// A decode worker that went on with it fetched it.
        HandedOver = "handed_over",
        /// It was fetched so that it is let go.
        Fetched = "fetched",
        /// It was left until its worker drops it.
        Lapsed = "lapsed",
        /// Its worker went.
        Gone = "gone",
        /// There was none.
        NotStaged = "not_staged",
    }
);

label!(
    /// Why a connection, or the head of a request, was turned away.
    TurnedAway = "why" {
        /// There were too many connections.
        Total = "total",
        /// There were too many from its address.
        Client = "client",
        /// TLS was not agreed upon.
        Handshake = "handshake",
        /// A head took too long to come.
        HeaderTime = "header_time",
        /// A head was too long.
        HeaderSize = "header_size",
        /// A head had too many headers.
        HeaderCount = "header_count",
        /// A head could be read in two ways, or in none.
        Malformed = "malformed",
    }
);

label!(
    /// Why a request was refused because of its body.
    BodyRefusal = "reason" {
        /// The budget for all bodies is used up.
        Budget = "budget",
        /// Its client holds its part of the budget already.
        ClientShare = "client_share",
        /// It is longer than the limit.
        TooLarge = "too_large",
        /// It came more slowly than the least rate.
        TooSlow = "too_slow",
        /// It was not complete in time.
        Timeout = "timeout",
    }
);

label!(
    /// Who did not know the secret that was asked for.
    Asker = "who" {
        /// A client, an API key.
        Client = "client",
        /// An operator, the token of operators.
        Operator = "operator",
        /// A worker that registers, its token.
        Worker = "worker",
    }
);

label!(
    /// Why an id of a stored response was refused.
    RefusedResponseId = "reason" {
        /// It is not of the form of an id.
        Malformed = "malformed",
        /// No key of this gateway signed it.
        Forged = "forged",
        /// The response belongs to another tenant.
        Foreign = "foreign",
    }
);

label!(
    /// Which limit of a key or a tenant was reached.
    Quota = "of" {
        /// Requests in a minute.
        Requests = "requests",
        /// Tokens in a minute.
        Tokens = "tokens",
    }
);

label!(
    /// What was done with fields of the engine in a request of a client.
    FieldAction = "action" {
        /// The request was refused.
        Refused = "refused",
        /// They were removed.
        Stripped = "stripped",
    }
);

label!(
    /// How the tokens of a prompt are known.
    TokenSource = "source" {
        /// The request has them.
        Request = "request",
        /// From a local tokenizer.
        Tokenizer = "tokenizer",
        /// A worker said so.
        Worker = "worker",
        /// They are not.
        Nobody = "nobody",
    }
);

label!(
    /// How a prediction of cached tokens turned out.
    Prediction = "was" {
        /// As predicted.
        Equal = "equal",
        /// Less was cached: evidence against the view.
        Less = "less",
        /// More was cached: usually a sibling came first.
        More = "more",
        /// The engine does not say.
        Unsaid = "unsaid",
    }
);

label!(
    /// Who told of workers.
    SourceKind = "source" {
        /// Settings, which do not change.
        Static = "static",
        /// The settings file, which is watched.
        File = "file",
        /// A name that is resolved again and again.
        Dns = "dns",
        /// Workers that tell of themselves.
        Registration = "registration",
    }
);

label!(
    /// How a question to an engine ended.
    Asked = "outcome" {
        /// With an answer that could be used.
        Answered = "answered",
        /// With another answer, or without a connection.
        Failed = "failed",
        /// Nothing came in time.
        TimedOut = "timed_out",
        /// It was not asked because too many others were being asked.
        Skipped = "skipped",
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check<L: LabelValue>(all: &[L]) {
        assert_eq!(all.len(), L::VALUES.len());
        for (place, value) in all.iter().enumerate() {
            assert_eq!(value.place(), place, "{}", L::NAME);
        }
        let distinct: BTreeSet<_> = L::VALUES.iter().collect();
        assert_eq!(distinct.len(), L::VALUES.len(), "{}", L::NAME);
        let plain = |value: &&str| value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(L::VALUES.iter().all(plain), "{}", L::NAME);
    }

    #[test]
    fn values_are_distinct_plain_and_in_order() {
        check(&Change::ALL);
        check(&ViewState::ALL);
        check(&RepairKind::ALL);
        check(&RoutePart::ALL);
        check(&WorkerRole::ALL);
        check(&FoundSeverity::ALL);
        check(&Skip::ALL);
        check(&Outcome::ALL);
        check(&RequestEnd::ALL);
        check(&TryFailure::ALL);
        check(&LegKind::ALL);
        check(&LegEnd::ALL);
        check(&HandoffFate::ALL);
        check(&TurnedAway::ALL);
        check(&BodyRefusal::ALL);
        check(&Asker::ALL);
        check(&Quota::ALL);
        check(&FieldAction::ALL);
        check(&RefusedResponseId::ALL);
        check(&TokenSource::ALL);
        check(&Prediction::ALL);
        check(&SourceKind::ALL);
        check(&Asked::ALL);
    }
}
