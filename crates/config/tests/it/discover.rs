//! Are places to look for workers read the same from everywhere, and is what is wrong with them said well?

use std::net::IpAddr;

use expect_test::{Expect, expect};
use homing_config::{CacheView, Config, Discover, FileText, Inputs, resolve};
use proptest::prelude::*;

const PLACE: &str = "dns:vllm.default.svc:8000,model=qwen,events=tcp://{host}:5557,replay=tcp://{host}:5567";

fn flags(places: &[&str]) -> Inputs {
    Inputs {
        discover_flags: places.iter().map(|&text| text.to_owned()).collect(),
        ..Inputs::default()
    }
}

fn file(text: &str) -> Inputs {
    Inputs {
        file: Some(FileText {
            name: "homing.toml".to_owned(),
            text: text.to_owned(),
        }),
        ..Inputs::default()
    }
}

fn worker(place: &str, address: &str, port: u16) -> String {
    let place = Discover::parse(place).unwrap_or_else(|problems| panic!("{problems:?}"));
    let address: IpAddr = address.parse().expect("it is an address");
    let worker = place.worker(address, port, &Config::default().worker_defaults());
    worker.unwrap_or_else(|problems| panic!("{problems:?}")).to_string()
}

#[test]
fn flag_variable_and_file_say_the_same() {
    let from_flag = resolve(&flags(&[PLACE])).unwrap();
    let from_variable = resolve(&Inputs {
        discover_variable: format!("\n {PLACE} \n"),
        ..Inputs::default()
    });
    let from_variable = from_variable.unwrap();
    let from_file = resolve(&file(&format!("discover = [\"{PLACE}\"]"))).unwrap();
    assert_eq!(from_flag.config.discover[0].to_string(), PLACE);
    assert_eq!(from_flag.config, from_variable.config);
    assert_eq!(from_flag.config, from_file.config);
    let sources = [&from_flag, &from_variable, &from_file].map(|resolved| resolved.discover_source.to_string());
    assert_eq!(
        sources,
        [
            "from flag --discover",
            "from variable HOMING_DISCOVER",
            "from file homing.toml"
        ]
    );
}

#[test]
fn a_stronger_list_replaces_a_weaker_one() {
    let inputs = Inputs {
        discover_variable: "dns:b:1 dns:c:1".to_owned(),
        ..file("discover = [\"dns:a:1\"]")
    };
    let shown = |inputs: &Inputs| -> Vec<String> {
        let places = resolve(inputs).unwrap().config.discover;
        places.iter().map(ToString::to_string).collect()
    };
    assert_eq!(shown(&inputs), ["dns:b:1", "dns:c:1"]);
    let stronger = Inputs {
        discover_flags: vec!["dns-srv:_http._tcp.d".to_owned()],
        ..inputs
    };
    assert_eq!(shown(&stronger), ["dns-srv:_http._tcp.d"]);
}

#[test]
fn an_address_makes_a_worker() {
    expect!["http://10.0.0.7:8000,events=tcp://10.0.0.7:5557,replay=tcp://10.0.0.7:5567,role=both,model=qwen,block-size=16,dialect=vllm,ranks=1,cache-view=events,copies=counted"]
        .assert_eq(&worker(PLACE, "10.0.0.7", 8000));
    expect!["http://[fd00::7]:8000,events=tcp://[fd00::7]:5557,replay=tcp://[fd00::7]:5567,role=both,model=qwen,block-size=16,dialect=vllm,ranks=1,cache-view=events,copies=counted"]
        .assert_eq(&worker(PLACE, "fd00::7", 8000));
}

#[test]
fn who_is_not_listened_to_is_guessed() {
    let view = |place: &str| {
        let place = Discover::parse(place).unwrap();
        let worker = place.worker([10, 0, 0, 7].into(), 80, &Config::default().worker_defaults());
        worker.unwrap().cache_view
    };
    assert_eq!(view("dns:a:1"), CacheView::Approximate);
    assert_eq!(view("dns:a:1,role=decode"), CacheView::Approximate);
    assert_eq!(view("dns:a:1,cache-view=none"), CacheView::None);
    assert_eq!(view("dns:a:1,agent=http://{host}:7600"), CacheView::Events);
    assert_eq!(view("dns:a:1,dialect=trtllm"), CacheView::Events);
}

#[test]
fn what_is_wrong_is_said() {
    let rejected = |inputs: &Inputs, expected: Expect| {
        let rejected = resolve(inputs).expect_err("something is wrong with it");
        expected.assert_eq(&rejected.to_string());
    };
    let wrong = [
        "vllm:8000",
        "dns:vllm",
        "dns:vllm:0",
        "dns:v llm:1",
        "dns-srv:",
        "dns:a:1,url=http://b",
        "dns:a:1,rolle=decode",
        "dns:a:1,replay=tcp://{host}:1",
        "dns:a:1,events=tcp://{hots}:1",
        "dns:a:1,agent=http://me:secret@b",
        "dns:a:1,cache-view=events",
    ];
    rejected(
        &flags(&wrong),
        expect![[r#"
            `discover` = "vllm:8000", from flag --discover: must be dns:HOST:PORT or dns-srv:NAME, then perhaps ,KEY=VALUE
            `discover` = "dns:vllm", from flag --discover: must have a port from 1 to 65535
            `discover` = "dns:vllm:0", from flag --discover: must have a port from 1 to 65535
            `discover` = "dns:v llm:1", from flag --discover: must name a host, in letters, digits, `.`, `-` and `_`
            `discover` = "dns-srv:", from flag --discover: must name a host, in letters, digits, `.`, `-` and `_`
            `discover` = "dns:a:1", from flag --discover: `url` is what is found there, and cannot be given
            `discover` = "dns:a:1", from flag --discover: there is no key `rolle`; did you mean `role`?
            `discover` = "dns:a:1", from flag --discover: `replay` needs `events`
            `discover` = "dns:a:1", from flag --discover: `events` = "tcp://{hots}:1": must name a host or an IP address (an IPv6 address in brackets)
            `discover` = (not shown), from flag --discover: `agent` = (not shown): must hold no user name and no password
            `discover` = "dns:a:1", from flag --discover: `cache-view` is `events`, which needs `events` or `agent`; or say `cache-view=approximate`"#]],
    );
    rejected(
        &file("discover = \"dns:a:1\""),
        expect!["homing.toml: `discover` is a list of texts"],
    );
    rejected(
        &file("discover = [1]"),
        expect!["homing.toml: `discover` is a list of texts"],
    );
    let many = vec!["dns:a:1"; 65];
    rejected(
        &flags(&many),
        expect!["there are 65 places to look for workers, from flag --discover: must be 64 at most"],
    );
}

proptest! {
    /// What is accepted is shown as it is read back, and makes a worker of every address.
    #[test]
    fn what_is_accepted_makes_workers(text in "dns:[a-z0-9.-]{1,12}:[0-9]{1,5}(,(role=decode|events=tcp://\\{host\\}:[0-9]{1,5}|model=[a-z]{1,4}|[a-z=,:/{}]{0,12})){0,3}",
        address: [u8; 16], v6: bool, port in 1_u16..) {
        if let Ok(place) = Discover::parse(&text) {
            prop_assert_eq!(Discover::parse(&place.to_string()), Ok(place.clone()));
            let [a, b, c, d, ..] = address;
            let address: IpAddr = if v6 { address.into() } else { [a, b, c, d].into() };
            prop_assert!(place.worker(address, port, &Config::default().worker_defaults()).is_ok());
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = Discover::parse(&text);
        let _ = Discover::parse(&format!("dns:{text}"));
        let _ = Discover::parse(&format!("dns-srv:a,{text}"));
    }
}

#[test]
fn what_is_found_in_dns_opens_nothing_on_this_machine() {
    for options in [
        "events=bind:tcp://*:5557",
        "events=bind:ipc:///run/x",
        "events=ipc:///run/x",
    ] {
        let problems = Discover::parse(&format!("dns:a:1,{options}")).expect_err(options);
        assert!(problems[0].to_string().contains("settings file only"), "{problems:?}");
    }
}
