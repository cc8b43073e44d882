//! What is known of a worker when what was said of it and what it says itself are put together?
//!
//! What an operator said holds. What he did not say, which is what is as it is by default, is taken from the worker. Where the two
//! differ, that is said in words.

use homing_config::{AddressScope, CacheView, Endpoint, EventSource, ViewBy, WorkerDefaults, WorkerSpec};
use homing_domain::{ModelName, Role};
use homing_wire::Dialect;

use super::Facts;

/// What was said of a worker, with what it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The worker.
    pub spec: WorkerSpec,
    /// What was taken from the worker in place of a default, in words.
    pub learnt: Vec<String>,
    /// What it says that is not what was said of it, in words.
    pub mismatches: Vec<String>,
}

impl Facts {
    /// What was said of a worker together with what it says. A value that is the default counts as not said.
    pub fn fill(&self, spec: &WorkerSpec, defaults: &WorkerDefaults) -> Filled {
        let mut filled = Filled {
            spec: spec.clone(),
            learnt: Vec::new(),
            mismatches: Vec::new(),
        };
        self.fill_dialect(&mut filled);
        self.fill_model(&mut filled, defaults);
        self.fill_block_size(&mut filled, defaults);
        self.fill_events(&mut filled, defaults);
        self.fill_ranks(&mut filled);
        self.fill_role(&mut filled);
        filled
    }

    fn fill_dialect(&self, filled: &mut Filled) {
        let Some(dialect) = self.dialect.filter(|dialect| *dialect != filled.spec.dialect) else {
            return;
        };
        if filled.spec.dialect == Dialect::Vllm {
            filled.spec.dialect = dialect;
            filled.learnt.push(format!("its dialect is {dialect}"));
        } else {
            let said = filled.spec.dialect;
            filled.mismatches.push(format!(
                "it answers as {dialect}, and its dialect was said to be {said}"
            ));
        }
    }

    fn fill_model(&self, filled: &mut Filled, defaults: &WorkerDefaults) {
        let Some(models) = &self.models else {
            return;
        };
        let said = &filled.spec.model;
        if models.iter().any(|model| model.name == said.as_str()) {
            return;
        }
        match self.base_models().next() {
            Some(model) if *said == defaults.model => {
                filled.learnt.push(format!("it serves {}", model.name));
                filled.spec.model = ModelName::new(model.name.as_str());
            }
            _ => {
                let names: Vec<&str> = models.iter().take(8).map(|model| model.name.as_str()).collect();
                let names = names.join(", ");
                filled
                    .mismatches
                    .push(format!("it serves {names}, and its model was said to be {said}"));
            }
        }
    }

    fn fill_block_size(&self, filled: &mut Filled, defaults: &WorkerDefaults) {
        let said = filled.spec.block_size;
        let Some(size) = self.block_size.filter(|size| size.get() % said.get() != 0) else {
            return;
        };
        if said == defaults.block_size {
            filled.spec.block_size = size;
            filled.learnt.push(format!("its blocks have {} tokens", size.get()));
        } else {
            filled.mismatches.push(format!(
                "its blocks have {} tokens, and were said to have {}: no prefix we predict will be found there",
                size.get(),
                said.get()
            ));
        }
    }

    fn fill_events(&self, filled: &mut Filled, defaults: &WorkerDefaults) {
        let Some(told) = &self.events else {
            return;
        };
        let is_unknown = filled.spec.source == EventSource::Nobody && filled.spec.view_by == ViewBy::Assumption;
        if let (true, Some(path)) = (is_unknown, unusable_socket(told, &filled.spec, defaults)) {
            filled.mismatches.push(format!(
                "it says that its events are at ipc://{path}: that is used only if flags or the settings file name it, or if it is in \
                 `events.socket-dir`"
            ));
            return;
        }
        let spec = &mut filled.spec;
        match (&spec.source, told) {
            (EventSource::Nobody, EventSource::Stream { events, .. }) if spec.view_by == ViewBy::Assumption => {
                filled.learnt.push(format!("it publishes events at {events}"));
                spec.source = told.clone();
                spec.cache_view = CacheView::Events;
                spec.view_by = ViewBy::Choice;
            }
            (EventSource::Stream { events, .. }, EventSource::Nobody) => {
                filled.mismatches.push(format!(
                    "it says that it publishes no events, and they were said to be at {events}"
                ));
            }
            (EventSource::Stream { topic, .. }, EventSource::Stream { topic: told, .. })
                if !told.starts_with(topic.as_str()) =>
            {
                filled.mismatches.push(format!(
                    "the topic of its events is {told:?}, and was said to be {topic:?}"
                ));
            }
            _ => {}
        }
    }

    /// What an operator said of its role holds; then a label `role`; then what it says itself.
    fn fill_role(&self, filled: &mut Filled) {
        let label = filled.spec.labels.iter().find(|label| label.key == "role");
        let labelled = label.and_then(|label| match label.value.as_str() {
            "prefill" => Some(Role::Prefill),
            "decode" => Some(Role::Decode),
            _ => None,
        });
        let said = Some(filled.spec.role).filter(|role| *role != Role::Both).or(labelled);
        match (said, self.role) {
            (Some(said), Some(told)) if said != told => {
                let (said, told) = (said.name(), told.name());
                filled
                    .mismatches
                    .push(format!("it says that its role is {told}, and it was said to be {said}"));
            }
            (None, Some(told)) => filled.learnt.push(format!("its role is {}", told.name())),
            _ => {}
        }
        filled.spec.role = said.or(self.role).unwrap_or_default();
    }

    fn fill_ranks(&self, filled: &mut Filled) {
        let Some(ranks) = self.ranks.filter(|ranks| *ranks != filled.spec.ranks) else {
            return;
        };
        let said = filled.spec.ranks;
        let filled_spec = WorkerSpec {
            ranks,
            ..filled.spec.clone()
        };
        // A rank without a port of its own would be one without events.
        let has_room = filled_spec.rank_sources().count() == usize::from(ranks);
        if said == 1 && has_room {
            filled.spec = filled_spec;
            filled.learnt.push(format!("it has {ranks} ranks"));
        } else {
            filled
                .mismatches
                .push(format!("it has {ranks} ranks, and was said to have {said}"));
        }
    }
}

/// The local socket of a source that the worker's own word is not enough for.
fn unusable_socket<'a>(told: &'a EventSource, spec: &WorkerSpec, defaults: &WorkerDefaults) -> Option<&'a str> {
    let EventSource::Stream { events, replay, .. } = told else {
        return None;
    };
    let is_usable = |path: &str| spec.scope == AddressScope::Any && defaults.allows_learned_socket(path);
    [Some(&events.endpoint), replay.as_ref()]
        .into_iter()
        .flatten()
        .find_map(|endpoint| match endpoint {
            Endpoint::Ipc { path } if !is_usable(path) => Some(path.as_str()),
            Endpoint::Ipc { .. } | Endpoint::Tcp { .. } => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Model;
    use expect_test::{Expect, expect};
    use homing_config::{Config, EventsEndpoint};
    use homing_domain::BlockSize;

    fn facts() -> Facts {
        let model = |name: &str, parent: Option<&str>| Model {
            root: None,
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            max_len: None,
        };
        Facts {
            dialect: Some(Dialect::Sglang),
            models: Some(vec![model("qwen", None), model("qwen-law", Some("qwen"))]),
            block_size: BlockSize::new(64),
            ranks: Some(2),
            events: Some(EventSource::Stream {
                events: EventsEndpoint::parse("tcp://a:5557").unwrap(),
                replay: None,
                topic: "kv".to_owned(),
            }),
            ..Facts::default()
        }
    }

    fn check(said: &str, facts: &Facts, expected: &Expect) {
        let defaults = Config::default().worker_defaults();
        let spec = WorkerSpec::parse(said, &defaults.learning()).unwrap();
        let Filled {
            spec,
            learnt,
            mismatches,
        } = facts.fill(&spec, &defaults);
        let lines = [vec![spec.to_string()], learnt, vec!["but:".to_owned()], mismatches].concat();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn what_is_not_said_is_learnt() {
        check(
            "http://a",
            &facts(),
            &expect![[r#"
                http://a,events=tcp://a:5557,topic=kv,role=both,model=qwen,block-size=16,dialect=sglang,ranks=2,cache-view=events,copies=counted
                its dialect is sglang
                it serves qwen
                it publishes events at tcp://a:5557
                it has 2 ranks
                but:"#]],
        );
    }

    #[test]
    fn what_is_said_holds_and_differences_are_told() {
        check(
            "http://a,events=tcp://a:1,topic=x,model=llama,block-size=48,dialect=trtllm,ranks=3"
                .replace(",dialect=trtllm", "")
                .as_str(),
            &Facts {
                dialect: Some(Dialect::Vllm),
                ..facts()
            },
            &expect![[r#"
                http://a,events=tcp://a:1,topic=x,role=both,model=llama,block-size=48,dialect=vllm,ranks=3,cache-view=events,copies=counted
                but:
                it serves qwen, qwen-law, and its model was said to be llama
                its blocks have 64 tokens, and were said to have 48: no prefix we predict will be found there
                the topic of its events is "kv", and was said to be "x"
                it has 2 ranks, and was said to have 3"#]],
        );
        check(
            "http://a,cache-view=approximate,model=qwen-law,dialect=sglang",
            &Facts {
                block_size: BlockSize::new(1),
                dialect: Some(Dialect::Vllm),
                ranks: None,
                ..facts()
            },
            &expect![[r#"
                http://a,role=both,model=qwen-law,block-size=1,dialect=sglang,ranks=1,cache-view=approximate,copies=counted
                its blocks have 1 tokens
                but:
                it answers as vllm, and its dialect was said to be sglang"#]],
        );
        check(
            "http://a,events=tcp://a:1,model=qwen,dialect=sglang,ranks=2",
            &Facts {
                events: Some(EventSource::Nobody),
                ..facts()
            },
            &expect![[r#"
                http://a,events=tcp://a:1,role=both,model=qwen,block-size=16,dialect=sglang,ranks=2,cache-view=events,copies=counted
                but:
                it says that it publishes no events, and they were said to be at tcp://a:1"#]],
        );
    }

    #[test]
    fn a_local_socket_that_only_the_engine_names_needs_a_directory() {
        let told = |path: &str| Facts {
            events: Some(EventSource::Stream {
                events: EventsEndpoint::parse(&format!("ipc://{path}")).unwrap(),
                replay: None,
                topic: String::new(),
            }),
            ..Facts::default()
        };
        let source = |path: &str, directory: Option<&str>, scope: AddressScope| {
            let defaults = WorkerDefaults {
                socket_dir: directory.map(Into::into),
                ..Config::default().worker_defaults().scoped(scope)
            };
            let spec = WorkerSpec::parse("http://a", &defaults).unwrap();
            told(path).fill(&spec, &defaults)
        };
        let directory = Some("/run/homing");
        for (path, directory, scope, is_used) in [
            ("/run/homing/x", directory, AddressScope::Any, true),
            ("/run/homing/x", None, AddressScope::Any, false),
            ("/run/docker.sock", directory, AddressScope::Any, false),
            ("/run/homing/x", directory, AddressScope::Remote, false),
            ("/run/homing/x", directory, AddressScope::RegisteredLocally, false),
        ] {
            let filled = source(path, directory, scope);
            assert_eq!(
                filled.spec.source != EventSource::Nobody,
                is_used,
                "{path} {directory:?} {scope:?}"
            );
            assert_eq!(filled.mismatches.is_empty(), is_used);
        }
    }

    #[test]
    fn ranks_without_ports_are_not_taken() {
        check(
            "http://a,events=ipc:///run/x,model=qwen,dialect=sglang",
            &facts(),
            &expect![[r#"
                http://a,events=ipc:///run/x,role=both,model=qwen,block-size=16,dialect=sglang,ranks=1,cache-view=events,copies=counted
                but:
                it has 2 ranks, and was said to have 1"#]],
        );
    }
}
