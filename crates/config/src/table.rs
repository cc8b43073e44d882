//! Which knobs are there? This is the one place that says so.
//!
//! Each entry is: what it does (the doc comment), the [`KnobId`] that code refers to it by, its path, its default as an
//! operator would write it, and its kind with unit and range. After an edit, write the reference page anew with
//! `HOMING_BLESS=1 cargo test -p homing-config`; a test fails until that is done.

use crate::choices::{
    AdapterMethod, AdapterMode, COPIES_CHOICES, CacheIsolation, CacheView, CheckWorkers, DisaggWhen, EngineFields,
    EventFormat, HandoverFault, KvConnector, KvLoadFailure, LogFormat, LogLevel, MockDialect, ROLE_CHOICES, Switch,
};
use crate::knob::{Kind, Knob, Unit};

macro_rules! knobs {
    ($( $(#[doc = $doc:literal])+ $id:ident = $path:literal, $default:literal, $kind:expr; )+) => {
        /// Names a knob. The order is that of [`KNOBS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum KnobId {
            $( $(#[doc = $doc])+ $id, )+
        }

        impl KnobId {
            /// All of them, in the order of the reference page.
            pub const ALL: &'static [Self] = &[$( Self::$id ),+];
        }

        /// Every knob.
        pub static KNOBS: &[Knob] = &[$( Knob {
            path: $path,
            doc: concat!($($doc),+).trim_ascii(),
            default: $default,
            kind: $kind,
        } ),+];
    };
}

impl KnobId {
    /// What it names.
    pub fn knob(self) -> &'static Knob {
        &KNOBS[self as usize]
    }

    /// The knob whose path in the file is `path`.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|id| id.knob().path == path)
    }
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

knobs! {
    /// How many tokens make a block. The engines' blocks must be of this size or of a whole multiple of it: blocks of
    /// another size are other blocks. A worker can have one of its own.
    BlockSize = "block-size", "16", Kind::Count(Unit::Tokens, 1..=1024);

    /// The model that workers serve which do not say which, and that requests ask for which do not either.
    Model = "model", "default", Kind::Name;

    /// Whether the prompt and the answer of every request must be computed by different workers. Then a model is not listed and takes no
    /// requests while it has no prefill worker; otherwise decode workers serve alone.
    RequireDisagg = "require-disagg", "off", Kind::Choice(Switch::CHOICES);

    /// Where the constants of the block hash come from. All parts of one deployment must agree. A secret makes crafted
    /// collisions impractical; give it by file or variable, because other users of a machine can read flags.
    HashSeed = "hash.seed", "public", Kind::Seed;

    /// Where knowledge of the engines' caches comes from. A worker can have another. Unless `events` is written down, a worker of `homing serve`
    /// that nobody said a source of events of is `approximate` until it tells one itself.
    CacheView = "index.cache-view", "events", Kind::Choice(CacheView::CHOICES);

    /// How many distinct blocks one index keeps. When it is full, leaves are forgotten, and the ranks that held them are
    /// marked as truncated.
    Capacity = "index.capacity-blocks", "2^26", Kind::Count(Unit::Blocks, 1024..=1 << 31);

    /// How many ranks one index can hold at once.
    MaxRanks = "index.max-ranks", "1024", Kind::Count(Unit::Ranks, 1..=16_384);

    /// How many blocks of a rank are kept while their parent is unknown. What comes beyond that is not kept, and the rank
    /// is marked as truncated.
    OrphansPerRank = "index.orphans-per-rank", "4096", Kind::Count(Unit::Blocks, 0..=1 << 20);

    /// How it is understood that an engine announces a block which it announced before. A worker can have another.
    Copies = "index.copies", "counted", Kind::Choice(COPIES_CHOICES);

    /// Over how long a time the recent uses of a block are counted.
    HeatWindow = "index.heat-window", "60s", Kind::Time(1_000..=HOUR);

    /// Where `homing index` listens. Whoever can reach it can read what is cached where.
    IndexListen = "index.listen", "127.0.0.1:7500", Kind::Address;

    /// What must be sent to `homing index` as `Authorization: Bearer`. `/health` answers without it, in one word.
    IndexToken = "index.token", "none", Kind::Secret;

    /// The certificates, as PEM, with which `homing index` speaks TLS, its own first. They are read again when they change.
    IndexTlsCert = "index.tls-cert", "none", Kind::File;

    /// The key of that certificate, as PEM.
    IndexTlsKey = "index.tls-key", "none", Kind::File;

    /// How many connections `homing index` takes at once. At the limit an idle one is closed for a new one; if none is idle, the new one
    /// gets 503. Limits of heads and times are those of `serve.max-header-bytes`, `serve.max-headers`, `serve.header-timeout`,
    /// `serve.client-idle`, `serve.client-stall` and `serve.handshake-timeout`.
    IndexMaxConnections = "index.max-connections", "4096", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How many of them may come from one address (of IPv6: from one network of 64 bits).
    IndexMaxPerClient = "index.max-connections-per-client", "1024", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How long a request to `homing index` may be. A longer one is refused.
    IndexMaxRequest = "index.max-request-bytes", "16MiB", Kind::Size(1 << 10..=1 << 30);

    /// The file that `homing index` records everything in which it hears, to rebuild the index from. It is written anew.
    IndexRecord = "index.record", "none", Kind::File;

    /// The recording that `homing index` rebuilds its index from. It listens to nobody then.
    IndexFrom = "index.from", "none", Kind::File;

    /// Within which time a view must have been verified, by an event, a heartbeat or a question, to be called live.
    FeedVerifyWithin = "feed.verify-within", "5s", Kind::Time(100..=10 * MINUTE);

    /// How many batches of a rank are kept while it is being repaired, and how many may be between its source and its view at any time. When
    /// they are more, the source is not read until there is room.
    FeedBufferBatches = "feed.buffer-batches", "1024", Kind::Count(Unit::Batches, 16..=1 << 20);

    /// How many blocks those batches may have in all. When they are more, the newest batches are dropped and asked for
    /// afterwards.
    FeedBufferBlocks = "feed.buffer-blocks", "2^20", Kind::Count(Unit::Blocks, 1024..=1 << 28);

    /// How many repairs may be under way at once, over all ranks. Others wait.
    FeedMaxRepairs = "feed.max-repairs", "16", Kind::Count(Unit::Repairs, 1..=1024);

    /// After which time a repair that brings nothing is tried again.
    FeedRepairTimeout = "feed.repair-timeout", "30s", Kind::Time(100..=10 * MINUTE);

    /// How long one try of a repair may take, however much it brings.
    FeedRepairLimit = "feed.repair-limit", "300s", Kind::Time(1_000..=HOUR);

    /// The pause after the first failed try of a repair; it doubles with each, and is varied at random.
    FeedBackoffBase = "feed.backoff-base", "200ms", Kind::Time(1..=MINUTE);

    /// After how many tries a repair has failed for good. The rank is stale then, until another repair succeeds.
    FeedRepairTries = "feed.repair-tries", "8", Kind::Count(Unit::Tries, 1..=64);

    /// How many repairs one rank may need in a row before that counts as a failure.
    FeedRepairsInARow = "feed.repairs-in-a-row", "16", Kind::Count(Unit::Repairs, 1..=1024);

    /// After which time a repair that failed for good is begun again, even if nothing is heard.
    FeedRetryAfter = "feed.retry-after", "30s", Kind::Time(100..=HOUR);

    /// How many removals of blocks that a complete view does not know, within the drift window, are evidence that it has
    /// drifted and must be repaired.
    FeedDriftUnknownRemovals = "feed.drift-unknown-removals", "32", Kind::Count(Unit::Removals, 1..=1 << 20);

    /// Over which time those removals are counted, and how long blocks may wait for their parent before that is evidence
    /// of drift, too.
    FeedDriftWindow = "feed.drift-window", "10s", Kind::Time(100..=10 * MINUTE);

    /// The least time between two repairs of a rank because of drift; it doubles, up to 64 times, while they do not help.
    FeedDriftCooldown = "feed.drift-cooldown", "60s", Kind::Time(1_000..=HOUR);

    /// How many threads decode and hash events. All events of a rank go through the same one.
    EventsThreads = "events.threads", "2", Kind::Count(Unit::Threads, 1..=64);

    /// Batches that may wait for each thread that decodes. When they are more, sources are not read until there is room.
    EventsLaneBatches = "events.lane-batches", "4096", Kind::Count(Unit::Batches, 16..=1 << 20);

    /// Size of the undecoded batches that may be between the sockets of each decoding thread and the index. When they are more, sources
    /// are not read until there is room. A larger message waits until it is alone.
    EventsLaneBytes = "events.lane-bytes", "64MiB", Kind::Size(64 << 10..=16 << 30);

    /// How long it may take to connect to a source of events before it is tried anew.
    EventsConnectTimeout = "events.connect-timeout", "5s", Kind::Time(100..=MINUTE);

    /// How often a quiet connection to an engine is tested with a ping. One that does not answer is given up.
    EventsHeartbeat = "events.heartbeat", "2s", Kind::Time(100..=MINUTE);

    /// How long a message of a source of events may be. A longer one is not read, and the connection is begun anew.
    EventsMaxMessage = "events.max-message-bytes", "64MiB", Kind::Size(64 << 10..=1 << 30);

    /// The directory in which local sockets (`ipc:`) of events and replays must be. With `none`, those that flags or the settings file name may be
    /// anywhere, and one that only the engine itself names is not used.
    EventsSocketDir = "events.socket-dir", "none", Kind::File;

    /// Where `homing agent` listens. Whoever can reach it can read what is cached.
    AgentListen = "agent.listen", "127.0.0.1:7600", Kind::Address;

    /// What must be sent to `homing agent` as `Authorization: Bearer`, and what is sent to the agents of workers (`agent=`). `/health`
    /// answers without it. Those who ask agents read it at their start only.
    AgentToken = "agent.token", "none", Kind::Secret;

    /// The certificates, as PEM, with which `homing agent` speaks TLS, its own first. They are read again when they change.
    AgentTlsCert = "agent.tls-cert", "none", Kind::File;

    /// The key of that certificate, as PEM.
    AgentTlsKey = "agent.tls-key", "none", Kind::File;

    /// The certificates, as PEM, that vouch for agents with `https://`; `none`: those that the system trusts. It is read at the start
    /// only.
    AgentCa = "agent.ca", "none", Kind::File;

    /// How many connections `homing agent` takes at once: a router has one for each rank that it watches, and some for lists. At the
    /// limit an idle one is closed for a new one; if none is idle, the new one gets 503. Limits of heads and times are those of
    /// `homing index`.
    AgentMaxConnections = "agent.max-connections", "8192", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How many of them may come from one address (of IPv6: from one network of 64 bits).
    AgentMaxPerClient = "agent.max-connections-per-client", "1024", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How many batches of each rank the agent keeps for routers that ask from a position. Who asks for older ones has to
    /// take a list.
    AgentRingBatches = "agent.ring-batches", "2^16", Kind::Count(Unit::Batches, 16..=1 << 24);

    /// How many bytes those batches of one rank may take. Whichever of the two bounds is reached first holds; the newest
    /// batch is kept in any case.
    AgentRingBytes = "agent.ring-bytes", "256MiB", Kind::Size(1 << 20..=1 << 40);

    /// How often the agent tells those who watch how far it is.
    AgentHeartbeat = "agent.heartbeat", "1s", Kind::Time(100..=MINUTE);

    /// How often TensorRT-LLM is asked for its events: it does not send them by itself.
    AgentPollInterval = "agent.poll-interval", "20ms", Kind::Time(1..=10_000);

    /// How long a block that was routed to a rank is taken to be there.
    ApproximateTtl = "approximate.ttl", "120s", Kind::Time(1_000..=24 * HOUR);

    /// How many blocks the approximate view keeps before the oldest are pruned.
    ApproximateMaxBlocks = "approximate.max-blocks", "2^20", Kind::Count(Unit::Blocks, 1024..=1 << 31);

    /// To which share of its maximum the approximate view is pruned.
    ApproximatePruneTargetRatio = "approximate.prune-target-ratio", "0.8", Kind::Ratio(0.1..=1.0);

    /// The name server that is asked for workers (`--discover`); `system` for those that the system asks.
    DnsServer = "discovery.dns-server", "system", Kind::AddressOr("system");

    /// A name is looked up again when its answer is no longer valid, but not sooner than after this time.
    DnsLeast = "discovery.dns-least", "1s", Kind::Time(100..=HOUR);

    /// And not later than after this time.
    DnsMost = "discovery.dns-most", "30s", Kind::Time(100..=HOUR);

    /// How long a name server may take. What it told before holds when it takes longer.
    DnsTimeout = "discovery.dns-timeout", "2s", Kind::Time(10..=MINUTE);

    /// How often the settings file is looked at for changes.
    FileInterval = "discovery.file-interval", "1s", Kind::Time(10..=HOUR);

    /// How long a worker is kept that is missing in the answer of a name server: answers are not always complete.
    Linger = "discovery.linger", "10s", Kind::Time(0..=HOUR);

    /// How long a worker must wait that left twice within the flap window before it is taken again; twice as long with each
    /// further time, up to that window.
    FlapWait = "discovery.flap-wait", "1s", Kind::Time(0..=HOUR);

    /// For how long it is remembered that a worker left.
    FlapWindow = "discovery.flap-window", "60s", Kind::Time(0..=HOUR);

    /// How long the registration of a worker holds that does not say it, and how long `homing mock` asks for.
    Lease = "discovery.lease", "15s", Kind::Time(100..=HOUR);

    /// The longest that a registration may ask for.
    LeaseMost = "discovery.lease-most", "300s", Kind::Time(100..=24 * HOUR);

    /// Networks that the addresses of registered workers and of their events may be in; `none`: all that are not denied. Loopback addresses may
    /// be registered from this machine only, unless they are listed here.
    RegisterAllow = "discovery.register-allow", "none", Kind::Networks;

    /// Networks that they may not be in. The default has link-local and multicast networks, the addresses of cloud metadata, and what
    /// is no address of a single machine. The gateway's own listeners are always denied.
    RegisterDeny = "discovery.register-deny",
        "169.254.0.0/16,fe80::/10,0.0.0.0/8,::/128,224.0.0.0/4,255.255.255.255/32,ff00::/8,100.100.100.200/32,fd00:ec2::254/128",
        Kind::Networks;

    /// How many registrations, renewals and removals one token may send from one address per minute. A minute's worth may be used at once.
    /// More get 429 with `Retry-After`. A worker renews three times per lease.
    RegistrationsPerMinute = "discovery.registrations-per-minute", "1200", Kind::Count(Unit::Number, 1..=1 << 32);

    /// How often a worker is asked again what it is: models and adapters come and go.
    ProbeInterval = "probe.interval", "60s", Kind::Time(100..=24 * HOUR);

    /// How long each of its answers may take.
    ProbeTimeout = "probe.timeout", "5s", Kind::Time(10..=MINUTE);

    /// How often each worker is asked how busy it is. Engines serve worse when they are asked many times a second.
    LoadInterval = "load.interval", "1s", Kind::Time(50..=HOUR);

    /// How long that answer may take.
    LoadTimeout = "load.timeout", "1s", Kind::Time(10..=MINUTE);

    /// How many workers may be asked how busy they are at once. Others are left out until their next turn.
    LoadAtOnce = "load.at-once", "64", Kind::Count(Unit::Workers, 1..=4096);

    /// How often each worker is asked how it is.
    HealthInterval = "health.interval", "5s", Kind::Time(50..=HOUR);

    /// How long that answer may take. SGLang takes a second or more, because it generates a token for it.
    HealthTimeout = "health.timeout", "4s", Kind::Time(10..=10 * MINUTE);

    /// How many requests, or questions how it is, must fail in a row before a worker is left out.
    HealthFailures = "health.failures", "3", Kind::Count(Unit::Number, 1..=1000);

    /// Which share of the requests of `health.window` must fail before a worker is left out.
    HealthFailureRate = "health.failure-rate", "0.5", Kind::Ratio(0.01..=1.0);

    /// Over which time that share is taken.
    HealthWindow = "health.window", "30s", Kind::Time(100..=HOUR);

    /// How many requests there must be in that time.
    HealthLeastRequests = "health.least-requests", "20", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How long a worker is left out the first time. It doubles each time, and is varied at random.
    HealthBackoff = "health.backoff", "1s", Kind::Time(10..=HOUR);

    /// The longest that a worker is left out before it is tried again.
    HealthBackoffMost = "health.backoff-most", "60s", Kind::Time(10..=24 * HOUR);

    /// How many trials, one at a time, must go well before a worker is used like others again.
    HealthTrials = "health.trials", "2", Kind::Count(Unit::Number, 1..=1000);

    /// After which time a trial is given up of which nothing was heard.
    HealthTrialLimit = "health.trial-limit", "60s", Kind::Time(100..=HOUR);

    /// The largest share of the fleet that is left out because of failing requests. When more of them fail, the fault is
    /// perhaps not theirs.
    HealthMostOut = "health.most-out", "0.5", Kind::Ratio(0.0..=1.0);

    /// Whether workers that hang are found by their silence: no token of any stream, and counters that stand still.
    HealthStallDetection = "health.stall-detection", "on", Kind::Choice(Switch::CHOICES);

    /// How many times its expected step a worker with running streams may be silent before it is suspected of a stall.
    HealthStallStepMultiple = "health.stall-step-multiple", "5", Kind::Ratio(1.0..=1000.0);

    /// No worker is suspected of a stall after a shorter silence.
    HealthStallSuspectAfter = "health.stall-suspect-after", "150ms", Kind::Time(20..=HOUR);

    /// No worker is ejected because of a stall after a shorter silence.
    HealthStallEjectAfter = "health.stall-eject-after", "800ms", Kind::Time(50..=HOUR);

    /// When a larger share of the workers for the same model looks stalled, none of them is ejected: the cause is perhaps elsewhere.
    HealthStallPanicThreshold = "health.stall-panic-threshold", "0.5", Kind::Ratio(0.0..=1.0);

    /// Whether running streams leave an ejected worker, too. Otherwise they wait until it goes on, goes down or is silent for too long.
    HealthStallMigrateStreams = "health.stall-migrate-streams", "off", Kind::Choice(Switch::CHOICES);

    /// How much is logged, to standard error: what is as bad as this, and what is worse.
    LogLevel = "log.level", "info", Kind::Choice(LogLevel::CHOICES);

    /// How a line of the log is written.
    LogFormat = "log.format", "text", Kind::Choice(LogFormat::CHOICES);

    /// The collector of OpenTelemetry that `homing serve` sends spans to, by OTLP over HTTP in JSON: `http://HOST:4318` or `none`.
    TraceEndpoint = "trace.endpoint", "none", Kind::Name;

    /// Which share of requests is traced whose client says nothing about it. A client that does is followed.
    TraceShare = "trace.share", "0.01", Kind::Ratio(0.0..=1.0);

    /// What Homing is called in traces.
    TraceService = "trace.service", "homing", Kind::Name;

    /// How many requests whose spans wait to be sent. The spans of more are dropped and counted.
    TraceQueue = "trace.queue-requests", "4096", Kind::Count(Unit::Number, 1..=1 << 20);

    /// Where `homing serve` takes requests.
    ServeListen = "serve.listen", "127.0.0.1:8080", Kind::Address;

    /// Where operators ask `homing serve`: decisions, workers, metrics, health. Whoever can reach it can drain workers.
    ServeAdmin = "serve.admin", "127.0.0.1:8081", Kind::Address;

    /// Where `homing serve` advises proxies: they ask where a request should go, send it there themselves, and tell what became of it
    /// (`/homing/v1`); `none` for nowhere.
    ServeRoute = "serve.route", "none", Kind::AddressOr("none");

    /// For how long a booking of a proxy stands of which nothing is heard.
    ServeRouteLease = "serve.route-lease", "600s", Kind::Time(100..=24 * HOUR);

    /// How many threads carry requests; 0: as many as there are cores.
    ServeThreads = "serve.threads", "0", Kind::Count(Unit::Threads, 0..=256);

    /// How many clients may be connected at once. Others are told so and turned away.
    ServeMaxConnections = "serve.max-connections", "16384", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How many of them may come from one address (of IPv6: from one network of 64 bits). Others are turned away. A proxy in front is one
    /// address.
    ServeMaxPerClient = "serve.max-connections-per-client", "8192", Kind::Count(Unit::Number, 1..=1 << 20);

    /// The file of API keys. Without one nobody is asked for a key, and `homing serve` starts only if `serve.listen` is on the loopback
    /// interface, or with `serve.open`. `homing keys new` makes a key. The file is read again when it changes.
    ServeKeys = "serve.keys", "none", Kind::File;

    /// Whether clients may come from other machines without keys: for gateways behind something that asks for them.
    ServeOpen = "serve.open", "off", Kind::Choice(Switch::CHOICES);

    /// What is done with fields of clients that belong to engines: `kv_transfer_params`, `bootstrap_host`, `vllm_xargs.kv_transfer_params` and
    /// others that name hosts, blocks and ranks. Unless `allow`, they are also removed from answers.
    ServeEngineFields = "serve.engine-fields", "auto", Kind::Choice(EngineFields::CHOICES);

    /// Whose cached prefixes a request with an API key can use. The `cache_salt` of a client is prefixed with its tenant in any case.
    ServeCacheIsolation = "serve.cache-isolation", "salt", Kind::Choice(CacheIsolation::CHOICES);

    /// What operators must send as `Authorization: Bearer`. Needed unless `serve.admin` is on the loopback interface.
    ServeAdminToken = "serve.admin-token", "none", Kind::Secret;

    /// What workers must send as `Authorization: Bearer` to register themselves. The token of operators does as well; without either, no
    /// registration is taken.
    ServeRegisterToken = "serve.register-token", "none", Kind::Secret;

    /// A file of tokens for workers that register themselves, each with the names, roles and addresses that it allows. The file is read again when
    /// it changes. The page on security shows it. `serve.register-token` is a token for any name.
    ServeRegisterTokens = "serve.register-tokens", "none", Kind::File;

    /// The certificates, as PEM, with which `homing serve` speaks TLS to clients, its own first. They are read again when they change.
    ServeTlsCert = "serve.tls-cert", "none", Kind::File;

    /// The key of that certificate, as PEM.
    ServeTlsKey = "serve.tls-key", "none", Kind::File;

    /// Whether operators are spoken to with TLS as well, if there is a certificate.
    ServeAdminTls = "serve.admin-tls", "on", Kind::Choice(Switch::CHOICES);

    /// What engines are sent as `Authorization: Bearer`, in place of what the client sent. It is read at the start only.
    ServeWorkerKey = "serve.worker-key", "none", Kind::Secret;

    /// The certificates, as PEM, of those who vouch for workers with `https://`; `none`: those that the system trusts. It is read at the
    /// start only.
    ServeWorkerCa = "serve.worker-ca", "none", Kind::File;

    /// The directory in which `homing serve` keeps what must survive a restart: the key that signs ids of stored responses, unless
    /// `responses.key-file` names one. It is made if it is not there, and only its user can read it.
    ServeStateDir = "serve.state-dir", "none", Kind::File;

    /// How long the head of a request may be: its first line and its headers. A longer one gets 431.
    ServeMaxHeaderBytes = "serve.max-header-bytes", "64KiB", Kind::Size(8 << 10..=1 << 20);

    /// How many headers a request may have. One with more gets 431.
    ServeMaxHeaders = "serve.max-headers", "100", Kind::Count(Unit::Number, 8..=1024);

    /// How long the head of a request may take to come. One that takes longer gets 408; a connection over which nothing came is closed.
    ServeHeaderTimeout = "serve.header-timeout", "10s", Kind::Time(100..=HOUR);

    /// How long a client's connection may be idle between two requests. It must be more than the limit of a proxy in front.
    ServeClientIdle = "serve.client-idle", "120s", Kind::Time(100..=24 * HOUR);

    /// How long it may take to agree upon TLS.
    ServeHandshakeTimeout = "serve.handshake-timeout", "5s", Kind::Time(100..=MINUTE);

    /// How many connections operators may have at once. At the limit an idle connection is closed for a new one.
    ServeAdminMaxConnections = "serve.admin-max-connections", "256", Kind::Count(Unit::Number, 1..=1 << 16);

    /// How many of them may come from one address (of IPv6: from one network of 64 bits).
    ServeAdminMaxPerClient = "serve.admin-max-connections-per-client", "32", Kind::Count(Unit::Number, 1..=1 << 16);

    /// How many more are accepted while a limit is reached and no connection is idle. They may ask once for health or `/metrics`; anything
    /// else gets 503.
    ServeAdminReserved = "serve.admin-reserved-connections", "8", Kind::Count(Unit::Number, 0..=1024);

    /// How long the head of a request of an operator may take to come.
    ServeAdminHeaderTimeout = "serve.admin-header-timeout", "5s", Kind::Time(100..=HOUR);

    /// How long a connection of an operator may be idle between two requests.
    ServeAdminIdle = "serve.admin-idle", "60s", Kind::Time(100..=24 * HOUR);

    /// By what workers are chosen, with weights if it has some: `time`, `blocks:credit=2`. The page on policies has all of them.
    ServePolicy = "serve.policy", "time", Kind::Name;

    /// How fast workers are, to begin with: a profile that comes with Homing (`homing profile list`), or a file that ends in
    /// `.json`. It is corrected by what is observed.
    ServeProfile = "serve.profile", "h200-llama-3.1-8b", Kind::Name;

    /// A folder with a model's `tokenizer.json` and chat template, or with such a folder for each model, named as the model with
    /// `--` for each slash. Without one, workers are asked which tokens a prompt has.
    ServeTokenizer = "serve.tokenizer", "none", Kind::File;

    /// How long a worker may take to say which tokens a prompt has. After that the request is routed by load.
    ServeTokenizeTimeout = "serve.tokenize-timeout", "1s", Kind::Time(1..=MINUTE);

    /// What is done when a worker comes to find out whether it is set up well. `homing status` shows what was found.
    ServeCheckWorkers = "serve.check-workers", "quiet", Kind::Choice(CheckWorkers::CHOICES);

    /// What is done with LoRA adapters.
    ServeAdapters = "serve.adapters", "route", Kind::Choice(AdapterMode::CHOICES);

    /// How long a request may be. A longer one is refused.
    ServeMaxRequest = "serve.max-request-bytes", "64MiB", Kind::Size(1 << 10..=1 << 30);

    /// How much memory the bodies of all requests may take together, until their requests end; 0: a quarter of the memory of the machine
    /// or of the control group, whichever is less. A client (its tenant, or its address without keys) may hold at most as much as is
    /// still free. Beyond either a request gets 503. Also the limit of `homing index`.
    ServeBodyBudget = "serve.body-budget-bytes", "0", Kind::Size(0..=1 << 44);

    /// How fast a body must come, at least, in each `serve.upload-window`. A slower one gets 408; 0: no limit.
    ServeMinUploadRate = "serve.min-upload-bytes-per-second", "1KiB", Kind::Size(0..=1 << 30);

    /// Over how long a time the rate of a body is measured.
    ServeUploadWindow = "serve.upload-window", "10s", Kind::Time(100..=HOUR);

    /// How long an answer may be that is kept until it is complete, so that its request can still be tried elsewhere. A longer
    /// one is passed on as it comes.
    ServeMaxAnswer = "serve.max-answer-bytes", "16MiB", Kind::Size(1 << 10..=1 << 30);

    /// How long connecting to a worker may take.
    ServeConnectTimeout = "serve.connect-timeout", "2s", Kind::Time(10..=MINUTE);

    /// How long a worker may take until the first token of an answer, or until the whole of one that is not streamed.
    ServeFirstTokenTimeout = "serve.first-token-timeout", "600s", Kind::Time(100..=24 * HOUR);

    /// How long a worker may be silent in the middle of an answer.
    ServeSilenceTimeout = "serve.silence-timeout", "60s", Kind::Time(100..=24 * HOUR);

    /// How long a request may take from its arrival to the end of its answer.
    ServeTotalTimeout = "serve.total-timeout", "1h", Kind::Time(100..=24 * HOUR);

    /// How long a client may take nothing of its answer before it is taken to be gone.
    ServeClientStall = "serve.client-stall", "60s", Kind::Time(100..=HOUR);

    /// How long a client may take to send its request.
    ServeRequestTimeout = "serve.request-timeout", "60s", Kind::Time(100..=HOUR);

    /// How long an idle connection to a worker is kept. It must be less than the worker's own limit, which is 5 s for vLLM and
    /// SGLang.
    ServeIdle = "serve.idle", "4s", Kind::Time(0..=HOUR);

    /// How long requests may go on after the gateway was told to end.
    ServeDrain = "serve.drain", "30s", Kind::Time(0..=24 * HOUR);

    /// How often a request is tried, each time at another worker, while nothing of an answer was passed on.
    ServeTries = "serve.tries", "3", Kind::Count(Unit::Tries, 1..=16);

    /// How many retries there may be for each request, over all of them: so that retries cannot double the load.
    ServeRetryBudget = "serve.retry-budget", "0.2", Kind::Ratio(0.0..=10.0);

    /// How often an answer that has begun may go on at another worker when its own fails; 0: never.
    ServeMigrations = "serve.migrations", "3", Kind::Count(Unit::Number, 0..=16);

    /// The longest answer, so far, that may go on at another worker.
    ServeMigrationTokens = "serve.migration-tokens", "32768", Kind::Count(Unit::Tokens, 0..=1 << 24);

    /// A request is let go while some worker is predicted to begin with it within this time. Otherwise it waits here, where its
    /// order and its worker can still be changed.
    ServeStartWithin = "serve.start-within", "200ms", Kind::Time(0..=HOUR);

    /// How long a request may wait here.
    ServeMostWait = "serve.most-wait", "60s", Kind::Time(1..=HOUR);

    /// How many requests may wait here. Others are refused.
    ServeQueueRequests = "serve.queue-requests", "4096", Kind::Count(Unit::Number, 0..=1 << 20);

    /// How many decisions are kept for operators to look at.
    ServeDecisions = "serve.decisions", "4096", Kind::Count(Unit::Number, 0..=1 << 20);

    /// The file that requests are logged to, as lines of JSON without any text of prompts, for `homing replay`.
    ServeLog = "serve.log", "none", Kind::File;

    /// How long that file may become before it is begun anew.
    ServeLogBytes = "serve.log-bytes", "256MiB", Kind::Size(1 << 16..=1 << 40);

    /// How many earlier files of it are kept.
    ServeLogFiles = "serve.log-files", "4", Kind::Count(Unit::Number, 0..=1000);

    /// Whether what an engine says when it fails is kept in decisions and logged. It can repeat parts of a prompt. Clients are told in any
    /// case.
    ServeEngineWords = "serve.engine-words", "off", Kind::Choice(Switch::CHOICES);

    /// The file of keys that sign ids of stored responses (`/v1/responses`), for several gateways before the same engines. Each line is a key, as
    /// `openssl rand -base64 32` prints one: the first signs, all verify. To rotate, put the new key second on all gateways, then first, and remove
    /// the old one when its responses are no longer used. The file is read again when it changes. Without it, see `serve.state-dir`.
    ResponsesKeyFile = "responses.key-file", "none", Kind::File;

    /// When two workers serve a request where there are prefill workers.
    DisaggWhen = "disagg.when", "predicted", Kind::Choice(DisaggWhen::CHOICES);

    /// With `predicted`: what it weighs that those who generate on a worker wait while it computes a prompt, in times of the prompt's time for each of
    /// them. More sends more prompts to prefill workers: shorter gaps and later first tokens.
    DisaggStall = "disagg.stall", "0.1", Kind::Ratio(0.0..=100.0);

    /// With `predicted`: by which share two workers have to be better than one.
    DisaggMargin = "disagg.margin", "0.02", Kind::Ratio(0.0..=10.0);

    /// With `rules`: fewer tokens than this are computed by the decode worker, if they are also a small share of the prompt.
    DisaggUncachedTokens = "disagg.uncached-tokens", "2048", Kind::Count(Unit::Tokens, 0..=1 << 24);

    /// With `rules`: what is a small share of the prompt.
    DisaggUncachedShare = "disagg.uncached-share", "0.7", Kind::Ratio(0.0..=1.0);

    /// Labels of workers that KV may travel between, as `zone=required,rack=0.5`: a label that must be the same on both, or by how much a pair
    /// that has it is preferred, from 0 to 1. `none`: KV may travel everywhere.
    DisaggTopology = "disagg.topology", "none", Kind::Name;

    /// The policy for prompts where two workers serve a request. `same`: that of `serve.policy`.
    DisaggPrefillPolicy = "disagg.prefill-policy", "same", Kind::Name;

    /// The policy for answers where two workers serve a request. `same`: that of `serve.policy`.
    DisaggDecodePolicy = "disagg.decode-policy", "same", Kind::Name;

    /// How long a prefill worker may take.
    DisaggPrefillTimeout = "disagg.prefill-timeout", "120s", Kind::Time(1..=HOUR);

    /// How long a decode worker may take to fetch KV and to begin its answer.
    DisaggBeginTimeout = "disagg.begin-timeout", "60s", Kind::Time(1..=HOUR);

    /// How long a prefill worker keeps KV that nobody fetches, where it does not say so: vLLM's `kv_lease_duration`.
    DisaggLease = "disagg.lease", "30s", Kind::Time(1..=HOUR);

    /// Prompt tokens that may be queued on a prefill rank; beyond it, requests are refused. 0: any number.
    DisaggQueuedTokens = "disagg.queued-tokens", "0", Kind::Count(Unit::Tokens, 0..=1 << 31);

    /// The share of a prefill worker's cache that may hold KV which is not fetched yet.
    DisaggStagedShare = "disagg.staged-share", "0.5", Kind::Ratio(0.01..=1.0);

    /// How fast KV travels to or from a worker, in gigabits per second; 0 if that is not known, and then it counts for nothing.
    DisaggLink = "disagg.link-gbps", "100", Kind::Ratio(0.0..=1_000_000.0);

    /// How adapters are given to workers.
    AdaptersMethod = "adapters.method", "rendezvous", Kind::Choice(AdapterMethod::CHOICES);

    /// The file in which adapters that operators told of are kept over a restart, where they are managed (`serve.adapters`). It is made if it is not
    /// there. Without one they must be told of again, but for those that engines have.
    AdaptersCatalogue = "adapters.catalogue", "none", Kind::File;

    /// How many adapters a rank takes whose engine does not say it.
    AdaptersSlots = "adapters.slots", "4", Kind::Count(Unit::Number, 0..=4096);

    /// How often it is worked out where adapters should be.
    AdaptersRound = "adapters.round", "3s", Kind::Time(100..=HOUR);

    /// How far back requests count for how much an adapter is wanted.
    AdaptersWindow = "adapters.window", "60s", Kind::Time(1_000..=24 * HOUR);

    /// How many times its share of the busy workers an adapter gets.
    AdaptersHeadroom = "adapters.headroom", "1.5", Kind::Ratio(0.1..=100.0);

    /// For how many rounds an adapter must have been on too many workers before it may be on fewer.
    AdaptersDownRounds = "adapters.down-rounds", "5", Kind::Count(Unit::Number, 1..=1000);

    /// How many adapters are loaded or unloaded at once, in all; on one worker it is one.
    AdaptersAtOnce = "adapters.at-once", "8", Kind::Count(Unit::Number, 1..=4096);

    /// How long a load may take. One that takes longer has failed.
    AdaptersLoadTimeout = "adapters.load-within", "60s", Kind::Time(10..=HOUR);

    /// How long an unload may take.
    AdaptersUnloadTimeout = "adapters.unload-within", "10s", Kind::Time(10..=HOUR);

    /// How long a load is expected to take before one was seen.
    AdaptersExpectedLoad = "adapters.expected-load", "500ms", Kind::Time(0..=HOUR);

    /// How often a load is tried on a worker before it is left alone for `adapters.backoff-most`.
    AdaptersTries = "adapters.tries", "3", Kind::Count(Unit::Number, 1..=100);

    /// The pause after a load failed; it doubles with each failure.
    AdaptersBackoff = "adapters.backoff", "1s", Kind::Time(10..=HOUR);

    /// The longest such pause.
    AdaptersBackoffMost = "adapters.backoff-most", "300s", Kind::Time(10..=24 * HOUR);

    /// How long the demo runs, over all of its parts. Starting and comparing come on top of it.
    DemoDuration = "demo.duration", "36s", Kind::Time(2_000..=10 * MINUTE);

    /// How many workers the demo begins with. One more comes later.
    DemoWorkers = "demo.workers", "4", Kind::Count(Unit::Workers, 2..=32);

    /// How many people talk to it, each in one conversation at a time.
    DemoUsers = "demo.users", "48", Kind::Count(Unit::Number, 1..=4096);

    /// How many blocks each of its workers can cache. It is small, so that a few people are to it what many are to a real one.
    DemoCache = "demo.cache-blocks", "8000", Kind::Count(Unit::Blocks, 1024..=1 << 20);

    /// Of so many messages in which a worker tells of its cache one is lost on purpose; 0: none is.
    DemoDropEvery = "demo.drop-every", "100", Kind::Count(Unit::Batches, 0..=1 << 24);

    /// What is said is generated from it. The same seed gives the same conversations.
    DemoSeed = "demo.seed", "1", Kind::Count(Unit::Number, 0..=1 << 53);

    /// The address that `homing mock` listens on.
    MockHost = "mock.host", "127.0.0.1", Kind::Name;

    /// The port that it listens on. Each further worker takes the next one; 0 stands for any.
    MockPort = "mock.port", "8000", Kind::Count(Unit::Number, 0..=65_535);

    /// Which engine it pretends to be.
    MockDialect = "mock.dialect", "vllm", Kind::Choice(MockDialect::CHOICES);

    /// How long its steps take: a profile that comes with Homing (`homing profile list`), or `polynomial`.
    MockProfile = "mock.profile", "h200-llama-3.1-8b", Kind::Name;

    /// A profile of your own, in place of one that comes with Homing.
    MockProfileFile = "mock.profile-file", "none", Kind::File;

    /// A folder with a `tokenizer.json`, for texts; without one a token stands for a byte.
    MockTokenizer = "mock.tokenizer", "none", Kind::File;

    /// Whether chats are put together by the chat template of that folder, as an engine does it, and not between two marks.
    MockChatTemplate = "mock.chat-template", "off", Kind::Choice(Switch::CHOICES);

    /// How many times as fast as the profile says it is.
    MockSpeedup = "mock.speedup", "1", Kind::Ratio(0.001..=100_000.0);

    /// How many blocks of KV cache each rank has.
    MockBlocks = "mock.blocks", "16384", Kind::Count(Unit::Blocks, 1..=1 << 26);

    /// How many blocks each rank keeps in host memory when they leave the device; 0: none.
    MockHostBlocks = "mock.host-blocks", "0", Kind::Count(Unit::Blocks, 0..=1 << 26);

    /// How fast blocks come back from host memory, in gigabytes per second.
    MockHostSpeed = "mock.host-speed", "50", Kind::Ratio(0.001..=100_000.0);

    /// How many blocks each rank keeps on disk when they leave host memory, or the device if there is none; 0: none.
    MockDiskBlocks = "mock.disk-blocks", "0", Kind::Count(Unit::Blocks, 0..=1 << 26);

    /// How fast blocks come back from disk, in gigabytes per second.
    MockDiskSpeed = "mock.disk-speed", "5", Kind::Ratio(0.001..=100_000.0);

    /// A file to which every allocation and eviction of a block is written, as lines of JSON; `-`: standard error.
    MockKvTrace = "mock.kv-trace", "none", Kind::File;

    /// How many tokens a prompt and its answer may have together, at most as many as fit into the cache.
    MockMaxModelLen = "mock.max-model-len", "2^17", Kind::Count(Unit::Tokens, 1..=1 << 26);

    /// How many requests are computed together.
    MockMaxRunning = "mock.max-running", "256", Kind::Count(Unit::Number, 1..=1 << 20);

    /// How many requests may wait on a rank; more are refused.
    MockMaxWaiting = "mock.max-waiting", "2^16", Kind::Count(Unit::Number, 1..=1 << 24);

    /// How many tokens vLLM computes in one step.
    MockMaxBatchedTokens = "mock.max-batched-tokens", "8192", Kind::Count(Unit::Tokens, 1..=1 << 24);

    /// How many data-parallel ranks each worker has.
    MockDpSize = "mock.dp-size", "1", Kind::Count(Unit::Ranks, 1..=256);

    /// Whether the ranks of a worker begin each step together, as they do where experts are shared.
    MockDpBarrier = "mock.dp-barrier", "off", Kind::Choice(Switch::CHOICES);

    /// How many engines there are, each with a port of its own.
    MockWorkers = "mock.workers", "1", Kind::Count(Unit::Workers, 1..=256);

    /// Together with the prompt, what decides the text of an answer. A request can have another.
    MockSeed = "mock.seed", "1", Kind::Count(Unit::Number, 0..=1 << 53);

    /// After about how many tokens an answer ends by itself, unless a request asks for all of them; 0: never.
    MockAnswerTokens = "mock.answer-tokens", "128", Kind::Count(Unit::Tokens, 0..=1 << 24);

    /// Whether equal prefixes are computed once. Off: as an engine whose prefix cache is turned off.
    MockPrefixCaching = "mock.prefix-caching", "on", Kind::Choice(Switch::CHOICES);

    /// Whether answers say how many tokens of their prompt came from the cache. vLLM does so only with
    /// --enable-prompt-tokens-details, SGLang with --enable-cache-report.
    MockUsageDetails = "mock.usage-details", "on", Kind::Choice(Switch::CHOICES);

    /// How far its clock is ahead, in the dates of its answers and in its events.
    MockClockAhead = "mock.clock-ahead", "0s", Kind::Time(0..=24 * HOUR);

    /// Whether adapters can be loaded and unloaded while it runs. vLLM allows it only with VLLM_ALLOW_RUNTIME_LORA_UPDATING.
    MockLoraUpdating = "mock.lora-updating", "on", Kind::Choice(Switch::CHOICES);

    /// How many LoRA adapters fit on the device at once; 0: adapters are not served.
    MockMaxLoras = "mock.max-loras", "4", Kind::Count(Unit::Number, 0..=4096);

    /// How much longer a step takes that uses an adapter which is not on the device.
    MockLoraLoad = "mock.lora-load", "50ms", Kind::Time(0..=HOUR);

    /// How long it takes to load an adapter that is asked for by name and path, one after the other. Requests go on meanwhile.
    MockLoraFetch = "mock.lora-fetch", "0s", Kind::Time(0..=HOUR);

    /// Where KV events are published: `tcp://HOST:PORT`, `ipc://PATH` or `none`. Each further rank takes the next port.
    MockEvents = "mock.events", "none", Kind::Name;

    /// Whether it connects there, to a subscriber that binds, in place of binding.
    MockEventsConnect = "mock.events-connect", "off", Kind::Choice(Switch::CHOICES);

    /// Where it answers requests for a replay: as `mock.events`. Each further rank takes the next port.
    MockReplay = "mock.replay", "none", Kind::Name;

    /// The first frame of every event message.
    MockTopic = "mock.topic", "kv-events", Kind::Name;

    /// How events are written.
    MockEventFormat = "mock.event-format", "map", Kind::Choice(EventFormat::CHOICES);

    /// How many elements a stored event of vLLM has when it is written as a list; what does not fit is left out.
    MockEventFields = "mock.event-fields", "13", Kind::Count(Unit::Number, 5..=13);

    /// How many batches of each rank are kept for a replay.
    MockRingBatches = "mock.ring-batches", "10000", Kind::Count(Unit::Batches, 0..=1 << 20);

    /// How many bytes of batches of each rank are kept for a replay, whatever their number.
    MockRingBytes = "mock.ring-bytes", "64MiB", Kind::Size(1 << 10..=1 << 40);

    /// How many messages wait for a subscriber that does not read. What comes beyond that is lost to it.
    MockHighWater = "mock.high-water", "100000", Kind::Count(Unit::Batches, 1..=1 << 20);

    /// What it is for, where prompts and answers are computed in different places. SGLang insists on it; vLLM does not mind.
    MockRole = "mock.role", "both", Kind::Choice(ROLE_CHOICES);

    /// How it hands KV over to others and takes it from them.
    MockKvConnector = "mock.kv-connector", "none", Kind::Choice(KvConnector::CHOICES);

    /// The port at which others fetch KV. Each further worker takes the next one; 0 stands for any.
    MockKvPort = "mock.kv-port", "0", Kind::Count(Unit::Number, 0..=65_535);

    /// How fast KV comes and goes, in gigabits per second. Takes as many times less as `mock.speedup` says. All that is under way shares it.
    MockKvLink = "mock.kv-link-gbps", "400", Kind::Ratio(0.001..=1_000_000.0);

    /// How long blocks stay for another engine that does not come. In real time, whatever the speed-up.
    MockKvLease = "mock.kv-lease", "480s", Kind::Time(1..=24 * HOUR);

    /// How long one waits for the other where two meet, and for KV that is on its way. In real time.
    MockKvWait = "mock.kv-wait", "300s", Kind::Time(1..=24 * HOUR);

    /// What becomes of a request whose KV does not come.
    MockKvLoadFailure = "mock.kv-load-failure", "fail", Kind::Choice(KvLoadFailure::CHOICES);

    /// Whether a decode worker of SGLang uses what is in its own cache, and fetches only the rest.
    MockDecodeRadix = "mock.decode-radix-cache", "off", Kind::Choice(Switch::CHOICES);

    /// The gateway's admin address, to which it tells that it is there, where it is and what it is, as long as it runs; or `none`.
    MockRegister = "mock.register", "none", Kind::Name;

    /// What it sends to the gateway as `Authorization: Bearer` with that.
    MockRegisterToken = "mock.register-token", "none", Kind::Secret;

    /// How long a request may be. A longer one is refused.
    MockMaxRequest = "mock.max-request-bytes", "64MiB", Kind::Size(1 << 10..=1 << 30);

    /// A fault from the start: connections are closed as soon as they are made.
    MockFaultRefuse = "mock.fault-refuse", "off", Kind::Choice(Switch::CHOICES);

    /// A fault from the start: requests for answers get status 500.
    MockFaultFail = "mock.fault-fail", "off", Kind::Choice(Switch::CHOICES);

    /// A fault from the start: the engine core stops. Requests for answers are taken and nothing comes back, streams get no more
    /// tokens; `/health` and `/metrics` are answered.
    MockFaultStall = "mock.fault-stall", "off", Kind::Choice(Switch::CHOICES);

    /// A fault from the start: the connection of an answer is cut after so many tokens; 0: never.
    MockFaultCutAfter = "mock.fault-cut-after", "0", Kind::Count(Unit::Tokens, 0..=1 << 24);

    /// A fault from the start: of so many batches of events one is not published; 0: none is lost.
    MockFaultDropEvery = "mock.fault-drop-every", "0", Kind::Count(Unit::Batches, 0..=1 << 24);

    /// A fault from the start: of so many batches of events one is published twice; 0: none is.
    MockFaultRepeatEvery = "mock.fault-repeat-every", "0", Kind::Count(Unit::Batches, 0..=1 << 24);

    /// A fault from the start: every step takes so many times as long.
    MockFaultSlowdown = "mock.fault-slowdown", "1", Kind::Ratio(0.001..=100_000.0);

    /// A fault from the start: adapters cannot be loaded.
    MockFaultRejectAdapters = "mock.fault-reject-adapters", "off", Kind::Choice(Switch::CHOICES);

    /// A fault from the start: of KV that is handed over.
    MockFaultHandover = "mock.fault-handover", "none", Kind::Choice(HandoverFault::CHOICES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn defaults_are_in_range_and_written_as_they_are_shown() {
        for knob in KNOBS {
            let value = knob.parse(knob.default);
            let value = value.unwrap_or_else(|refusal| panic!("{}: {refusal:?}", knob.path));
            assert_eq!(knob.show(&value), knob.default, "{}", knob.path);
        }
    }

    #[test]
    fn names_are_unique_in_every_form() {
        let forms: [fn(&Knob) -> String; 3] = [|k| k.path.to_owned(), Knob::flag, Knob::variable];
        for form in forms {
            let names: BTreeSet<String> = KNOBS.iter().map(form).collect();
            assert_eq!(names.len(), KNOBS.len());
        }
    }

    #[test]
    fn names_are_lower_case_words_in_at_most_one_section() {
        for knob in KNOBS {
            assert!(knob.path.matches('.').count() <= 1, "{}", knob.path);
            for word in knob.path.split(['.', '-']) {
                assert!(
                    !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()),
                    "{}",
                    knob.path
                );
            }
        }
    }

    #[test]
    fn docs_are_sentences() {
        for knob in KNOBS {
            assert!(
                knob.doc.ends_with('.') && knob.doc.len() > 20,
                "{}: {:?}",
                knob.path,
                knob.doc
            );
            assert!(
                !knob.doc.contains('|') && !knob.doc.contains('\n'),
                "{}: {:?}",
                knob.path,
                knob.doc
            );
        }
    }

    #[test]
    fn sections_are_not_scattered() {
        let mut sections: Vec<&str> = KNOBS.iter().map(Knob::section).collect();
        sections.dedup();
        let distinct: BTreeSet<&str> = sections.iter().copied().collect();
        assert_eq!(sections.len(), distinct.len(), "{sections:?}");
    }

    #[test]
    fn an_id_finds_its_knob_and_back() {
        for &id in KnobId::ALL {
            assert_eq!(KnobId::of_path(id.knob().path), Some(id));
        }
        assert_eq!(KnobId::of_path("index"), None);
    }
}
