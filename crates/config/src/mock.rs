//! What is `homing mock` to pretend?

use std::path::PathBuf;
use std::time::Duration;

use homing_domain::{Blocks, Role, Tokens};

use crate::choices::{EventFormat, HandoverFault, KvConnector, KvLoadFailure, MockDialect, ROLES, Switch};
use crate::secret::Secret;
use crate::table::KnobId;
use crate::values::{NONE, Values};

/// `homing mock`. Model and block size are those of [`crate::Config`].
#[derive(Clone, Debug, PartialEq)]
pub struct Mock {
    /// The address to listen on.
    pub host: String,
    /// The first worker's port.
    pub port: u16,
    /// Which engine it is.
    pub dialect: MockDialect,
    /// The name of its profile.
    pub profile: String,
    /// A profile to read in place of the named one.
    pub profile_file: Option<PathBuf>,
    /// A folder with a tokenizer; `None`: a token stands for a byte.
    pub tokenizer: Option<PathBuf>,
    /// Whether chats are put together by the template of that folder.
    pub chat_template: Switch,
    /// How many times as fast as the profile it is.
    pub speedup: f64,
    /// Whether equal prefixes are computed once.
    pub prefix_caching: Switch,
    /// Whether answers say how many tokens came from the cache.
    pub usage_details: Switch,
    /// How far its clock is ahead.
    pub clock_ahead: Duration,
    /// Blocks of cache of each rank.
    pub blocks: Blocks,
    /// Host memory of each rank.
    pub host_tier: MockTier,
    /// Disk of each rank.
    pub disk_tier: MockTier,
    /// Where allocations and evictions are written; `-` is standard error.
    pub kv_trace: Option<PathBuf>,
    /// Tokens of prompt and answer together.
    pub max_model_len: Tokens,
    /// Requests computed together.
    pub max_running: u32,
    /// Requests that may wait on a rank.
    pub max_waiting: u32,
    /// Tokens of a step of vLLM.
    pub max_batched_tokens: Tokens,
    /// Ranks of each worker.
    pub dp_size: u16,
    /// Whether they begin each step together.
    pub dp_barrier: Switch,
    /// Engines.
    pub workers: u16,
    /// What decides texts, together with prompts.
    pub seed: u64,
    /// After about how many tokens answers end by themselves; 0: never.
    pub answer_tokens: u32,
    /// Adapters on the device; 0: none are served.
    pub max_loras: u32,
    /// Whether adapters can be loaded while it runs.
    pub lora_updating: Switch,
    /// How much longer a step takes that loads one.
    pub lora_load: Duration,
    /// KV for others and from them.
    pub kv: MockKv,
    /// How long it takes to load one by request.
    pub lora_fetch: Duration,
    /// Events.
    pub events: MockEvents,
    /// The gateway that it tells of itself, as it was written; `None` where it tells nobody.
    pub register: Option<String>,
    /// What it must know for that.
    pub register_token: Secret,
    /// The longest request, in bytes.
    pub max_request_bytes: u64,
    /// What goes wrong from the start.
    pub faults: MockFaults,
}

/// What `homing mock` keeps of blocks that left the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MockTier {
    /// How many; 0: none.
    pub blocks: Blocks,
    /// How fast they come back, in gigabytes per second.
    pub speed: f64,
}

/// How `homing mock` hands KV over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MockKv {
    /// What it is for.
    pub role: Role,
    /// By which protocol.
    pub connector: KvConnector,
    /// The first worker's port for it.
    pub port: u16,
    /// How fast, in gigabits per second.
    pub link_gbps: f64,
    /// How long blocks stay for another engine.
    pub lease: Duration,
    /// How long one waits for the other.
    pub wait: Duration,
    /// What becomes of a request whose KV does not come.
    pub load_failure: KvLoadFailure,
    /// Whether a decode worker of SGLang uses its own cache.
    pub decode_radix_cache: Switch,
}

/// Where and how `homing mock` tells of its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MockEvents {
    /// Where they are published, as it was written; `None` where nothing is.
    pub publish: Option<String>,
    /// Whether that is connected to and not bound.
    pub connects: Switch,
    /// Where replays are asked for, as it was written.
    pub replay: Option<String>,
    /// The first frame.
    pub topic: String,
    /// How events are written.
    pub format: EventFormat,
    /// Elements of a stored event that is a list.
    pub fields: u32,
    /// Batches of a rank that are kept for replays.
    pub ring_batches: u32,
    /// Bytes of them.
    pub ring_bytes: u64,
    /// Messages that wait for one subscriber.
    pub high_water: u32,
}

/// What goes wrong in `homing mock` from the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MockFaults {
    /// Connections are closed as soon as they are made.
    pub refuse: Switch,
    /// Requests for answers get status 500.
    pub fail: Switch,
    /// Requests for answers are taken and nothing comes back.
    pub stall: Switch,
    /// Connections are cut after so many tokens of an answer; 0: never.
    pub cut_after: u32,
    /// One of so many batches is not published; 0: none.
    pub drop_every: u32,
    /// One of so many batches is published twice; 0: none.
    pub repeat_every: u32,
    /// Steps take so many times as long.
    pub slowdown: f64,
    /// Adapters cannot be loaded.
    pub reject_adapters: Switch,
    /// What goes wrong with KV that is handed over.
    pub handover: HandoverFault,
}

impl Mock {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            host: of.name(KnobId::MockHost),
            port: of.tiny(KnobId::MockPort),
            dialect: of.choice(MockDialect::ALL, KnobId::MockDialect),
            profile: of.name(KnobId::MockProfile),
            profile_file: of.file(KnobId::MockProfileFile),
            tokenizer: of.file(KnobId::MockTokenizer),
            chat_template: of.switch(KnobId::MockChatTemplate),
            speedup: of.ratio(KnobId::MockSpeedup),
            prefix_caching: of.switch(KnobId::MockPrefixCaching),
            usage_details: of.switch(KnobId::MockUsageDetails),
            clock_ahead: of.time(KnobId::MockClockAhead),
            blocks: Blocks(of.small(KnobId::MockBlocks)),
            host_tier: MockTier {
                blocks: Blocks(of.small(KnobId::MockHostBlocks)),
                speed: of.ratio(KnobId::MockHostSpeed),
            },
            disk_tier: MockTier {
                blocks: Blocks(of.small(KnobId::MockDiskBlocks)),
                speed: of.ratio(KnobId::MockDiskSpeed),
            },
            kv_trace: of.file(KnobId::MockKvTrace),
            max_model_len: Tokens(of.small(KnobId::MockMaxModelLen)),
            max_running: of.small(KnobId::MockMaxRunning),
            max_waiting: of.small(KnobId::MockMaxWaiting),
            max_batched_tokens: Tokens(of.small(KnobId::MockMaxBatchedTokens)),
            dp_size: of.tiny(KnobId::MockDpSize),
            dp_barrier: of.switch(KnobId::MockDpBarrier),
            workers: of.tiny(KnobId::MockWorkers),
            seed: of.count(KnobId::MockSeed),
            answer_tokens: of.small(KnobId::MockAnswerTokens),
            max_loras: of.small(KnobId::MockMaxLoras),
            lora_updating: of.switch(KnobId::MockLoraUpdating),
            lora_load: of.time(KnobId::MockLoraLoad),
            kv: MockKv::build(of),
            lora_fetch: of.time(KnobId::MockLoraFetch),
            events: MockEvents::build(of),
            register: of.name_unless(NONE, KnobId::MockRegister),
            register_token: of.secret(KnobId::MockRegisterToken),
            max_request_bytes: of.size(KnobId::MockMaxRequest),
            faults: MockFaults::build(of),
        }
    }
}

impl MockKv {
    fn build(of: &Values<'_>) -> Self {
        Self {
            role: of.choice(ROLES, KnobId::MockRole),
            connector: of.choice(KvConnector::ALL, KnobId::MockKvConnector),
            port: of.tiny(KnobId::MockKvPort),
            link_gbps: of.ratio(KnobId::MockKvLink),
            lease: of.time(KnobId::MockKvLease),
            wait: of.time(KnobId::MockKvWait),
            load_failure: of.choice(KvLoadFailure::ALL, KnobId::MockKvLoadFailure),
            decode_radix_cache: of.switch(KnobId::MockDecodeRadix),
        }
    }
}

impl MockEvents {
    fn build(of: &Values<'_>) -> Self {
        Self {
            publish: of.name_unless(NONE, KnobId::MockEvents),
            connects: of.switch(KnobId::MockEventsConnect),
            replay: of.name_unless(NONE, KnobId::MockReplay),
            topic: of.name(KnobId::MockTopic),
            format: of.choice(EventFormat::ALL, KnobId::MockEventFormat),
            fields: of.small(KnobId::MockEventFields),
            ring_batches: of.small(KnobId::MockRingBatches),
            ring_bytes: of.size(KnobId::MockRingBytes),
            high_water: of.small(KnobId::MockHighWater),
        }
    }
}

impl MockFaults {
    fn build(of: &Values<'_>) -> Self {
        Self {
            refuse: of.switch(KnobId::MockFaultRefuse),
            fail: of.switch(KnobId::MockFaultFail),
            stall: of.switch(KnobId::MockFaultStall),
            cut_after: of.small(KnobId::MockFaultCutAfter),
            drop_every: of.small(KnobId::MockFaultDropEvery),
            repeat_every: of.small(KnobId::MockFaultRepeatEvery),
            slowdown: of.ratio(KnobId::MockFaultSlowdown),
            reject_adapters: of.switch(KnobId::MockFaultRejectAdapters),
            handover: of.choice(HandoverFault::ALL, KnobId::MockFaultHandover),
        }
    }
}
