//! What is `homing mock` to pretend?

use std::path::PathBuf;
use std::time::Duration;

use homing_domain::{Blocks, Role, Tokens};

use crate::choices::{EventFormat, HandoverFault, KvConnector, KvLoadFailure, MockDialect, ROLES, Switch};
use crate::knob::Value;
use crate::secret::Secret;
use crate::security::secret;
use crate::table::KnobId;

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

/// How no address is written.
const NONE: &str = "none";

impl Mock {
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let count = |id| count(value, id);
        let small = |id| u32::try_from(count(id)).expect("ranges of 32-bit knobs end below 2^32");
        let tiny = |id| u16::try_from(count(id)).expect("ranges of 16-bit knobs end below 2^16");
        Self {
            host: name(value, KnobId::MockHost),
            port: tiny(KnobId::MockPort),
            dialect: MockDialect::ALL[choice(value, KnobId::MockDialect)],
            profile: name(value, KnobId::MockProfile),
            profile_file: file(value, KnobId::MockProfileFile),
            tokenizer: file(value, KnobId::MockTokenizer),
            chat_template: switch(value, KnobId::MockChatTemplate),
            speedup: ratio(value, KnobId::MockSpeedup),
            prefix_caching: switch(value, KnobId::MockPrefixCaching),
            usage_details: switch(value, KnobId::MockUsageDetails),
            clock_ahead: time(value, KnobId::MockClockAhead),
            blocks: Blocks(small(KnobId::MockBlocks)),
            host_tier: MockTier {
                blocks: Blocks(small(KnobId::MockHostBlocks)),
                speed: ratio(value, KnobId::MockHostSpeed),
            },
            disk_tier: MockTier {
                blocks: Blocks(small(KnobId::MockDiskBlocks)),
                speed: ratio(value, KnobId::MockDiskSpeed),
            },
            kv_trace: file(value, KnobId::MockKvTrace),
            max_model_len: Tokens(small(KnobId::MockMaxModelLen)),
            max_running: small(KnobId::MockMaxRunning),
            max_waiting: small(KnobId::MockMaxWaiting),
            max_batched_tokens: Tokens(small(KnobId::MockMaxBatchedTokens)),
            dp_size: tiny(KnobId::MockDpSize),
            dp_barrier: switch(value, KnobId::MockDpBarrier),
            workers: tiny(KnobId::MockWorkers),
            seed: count(KnobId::MockSeed),
            answer_tokens: small(KnobId::MockAnswerTokens),
            max_loras: small(KnobId::MockMaxLoras),
            lora_updating: switch(value, KnobId::MockLoraUpdating),
            lora_load: time(value, KnobId::MockLoraLoad),
            kv: MockKv::build(value),
            lora_fetch: time(value, KnobId::MockLoraFetch),
            events: MockEvents::build(value),
            register: Some(name(value, KnobId::MockRegister)).filter(|text| text != NONE),
            register_token: secret(value, KnobId::MockRegisterToken),
            max_request_bytes: size(value, KnobId::MockMaxRequest),
            faults: MockFaults::build(value),
        }
    }
}

impl MockKv {
    fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        Self {
            role: ROLES[choice(value, KnobId::MockRole)],
            connector: KvConnector::ALL[choice(value, KnobId::MockKvConnector)],
            port: u16::try_from(count(value, KnobId::MockKvPort)).expect("ranges of 16-bit knobs end below 2^16"),
            link_gbps: ratio(value, KnobId::MockKvLink),
            lease: time(value, KnobId::MockKvLease),
            wait: time(value, KnobId::MockKvWait),
            load_failure: KvLoadFailure::ALL[choice(value, KnobId::MockKvLoadFailure)],
            decode_radix_cache: switch(value, KnobId::MockDecodeRadix),
        }
    }
}

impl MockEvents {
    fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let small = |id| u32::try_from(count(value, id)).expect("ranges of 32-bit knobs end below 2^32");
        let address = |id| Some(name(value, id)).filter(|text| text != NONE);
        Self {
            publish: address(KnobId::MockEvents),
            connects: switch(value, KnobId::MockEventsConnect),
            replay: address(KnobId::MockReplay),
            topic: name(value, KnobId::MockTopic),
            format: EventFormat::ALL[choice(value, KnobId::MockEventFormat)],
            fields: small(KnobId::MockEventFields),
            ring_batches: small(KnobId::MockRingBatches),
            ring_bytes: size(value, KnobId::MockRingBytes),
            high_water: small(KnobId::MockHighWater),
        }
    }
}

impl MockFaults {
    fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let small = |id| u32::try_from(count(value, id)).expect("ranges of 32-bit knobs end below 2^32");
        Self {
            refuse: switch(value, KnobId::MockFaultRefuse),
            fail: switch(value, KnobId::MockFaultFail),
            stall: switch(value, KnobId::MockFaultStall),
            cut_after: small(KnobId::MockFaultCutAfter),
            drop_every: small(KnobId::MockFaultDropEvery),
            repeat_every: small(KnobId::MockFaultRepeatEvery),
            slowdown: ratio(value, KnobId::MockFaultSlowdown),
            reject_adapters: switch(value, KnobId::MockFaultRejectAdapters),
            handover: HandoverFault::ALL[choice(value, KnobId::MockFaultHandover)],
        }
    }
}

fn count(value: &impl Fn(KnobId) -> Value, id: KnobId) -> u64 {
    match value(id) {
        Value::Count(count) => count,
        other => unreachable!("{id:?} is {other:?}, not a count"),
    }
}

fn ratio(value: &impl Fn(KnobId) -> Value, id: KnobId) -> f64 {
    match value(id) {
        Value::Ratio(ratio) => ratio,
        other => unreachable!("{id:?} is {other:?}, not a ratio"),
    }
}

fn time(value: &impl Fn(KnobId) -> Value, id: KnobId) -> Duration {
    match value(id) {
        Value::Time(time) => time,
        other => unreachable!("{id:?} is {other:?}, not a time"),
    }
}

fn size(value: &impl Fn(KnobId) -> Value, id: KnobId) -> u64 {
    match value(id) {
        Value::Size(size) => size,
        other => unreachable!("{id:?} is {other:?}, not a size"),
    }
}

fn file(value: &impl Fn(KnobId) -> Value, id: KnobId) -> Option<PathBuf> {
    match value(id) {
        Value::File(path) => path,
        other => unreachable!("{id:?} is {other:?}, not a file"),
    }
}

fn name(value: &impl Fn(KnobId) -> Value, id: KnobId) -> String {
    match value(id) {
        Value::Name(name) => name,
        other => unreachable!("{id:?} is {other:?}, not a name"),
    }
}

fn choice(value: &impl Fn(KnobId) -> Value, id: KnobId) -> usize {
    match value(id) {
        Value::Choice(place) => place,
        other => unreachable!("{id:?} is {other:?}, not a choice"),
    }
}

fn switch(value: &impl Fn(KnobId) -> Value, id: KnobId) -> Switch {
    Switch::ALL[choice(value, id)]
}
