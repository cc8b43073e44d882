//! Which flags are there, and what did they say?
//!
//! Every knob is a flag of every subcommand that reads settings. A subcommand that has a section of its own also takes
//! that section's flags without the section's name: `homing demo --workers 4` is `homing demo --demo-workers 4`.

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::choices::Switch;
use crate::discover::{self, MAX_PLACES};
use crate::table::KnobId;
use crate::worker::keys::WorkerKey;
use crate::worker::{self, MAX_WORKERS};

/// The flag that names the file.
pub const FILE_FLAG: &str = "config";
/// The variable that names the file.
pub const FILE_VARIABLE: &str = "HOMING_CONFIG";

/// Adds the flags of all knobs, and those that name the file and the workers, to a subcommand.
pub fn with_flags(command: Command) -> Command {
    let own_section = command.get_name().to_owned();
    let file = Arg::new(FILE_FLAG)
        .long(FILE_FLAG)
        .value_name("FILE")
        .help(format!("The TOML file to read settings from [env: {FILE_VARIABLE}]"))
        .help_heading("Settings");
    let command = command.arg(file).arg(worker_flag()).arg(discover_flag()).after_help(
        "Every setting is also a variable (--index-max-ranks is HOMING_INDEX_MAX_RANKS) and a key of the file (max-ranks in \
         section [index]). A flag wins over a variable, a variable over the file.",
    );
    KnobId::ALL
        .iter()
        .fold(command, |command, &id| command.arg(flag(id, &own_section)))
}

/// What the flags said.
pub fn given(matches: &ArgMatches) -> Vec<(KnobId, String)> {
    let given = |&id: &KnobId| {
        let text = matches.get_one::<String>(id.knob().path)?;
        Some((id, text.clone()))
    };
    KnobId::ALL.iter().filter_map(given).collect()
}

/// The workers that flags named.
pub fn workers(matches: &ArgMatches) -> Vec<String> {
    let given = matches.get_many::<String>(worker::FLAG);
    given.map_or_else(Vec::new, |texts| texts.cloned().collect())
}

/// The places to look for workers that flags named.
pub fn places(matches: &ArgMatches) -> Vec<String> {
    let given = matches.get_many::<String>(discover::FLAG);
    given.map_or_else(Vec::new, |texts| texts.cloned().collect())
}

fn discover_flag() -> Arg {
    Arg::new(discover::FLAG)
        .long(discover::FLAG)
        .value_name(discover::SYNTAX)
        .action(ArgAction::Append)
        .help(format!(
            "Where workers are looked for, again and again: dns:HOST:PORT (A and AAAA records) or dns-srv:NAME; once for each \
             of up to {MAX_PLACES}. The keys are those of a worker, {} in them stands for its address [env: {}, separated by \
             white space]",
            discover::HOST,
            discover::VARIABLE
        ))
        .help_heading("Settings")
}

fn worker_flag() -> Arg {
    let keys = WorkerKey::ALL.iter().filter(|key| **key != WorkerKey::Url);
    let keys: Vec<&str> = keys.map(|key| key.name()).collect();
    Arg::new(worker::FLAG)
        .long(worker::FLAG)
        .value_name(worker::SYNTAX)
        .action(ArgAction::Append)
        .help(format!(
            "A worker and what is to be known about it; once for each of up to {MAX_WORKERS}. Keys: {} [env: {}, \
             separated by white space]",
            keys.join(", "),
            worker::VARIABLE
        ))
        .help_heading("Settings")
}

fn flag(id: KnobId, own_section: &str) -> Arg {
    let knob = id.knob();
    let heading = match knob.section() {
        "" => "Settings".to_owned(),
        section => format!("Settings: {section}"),
    };
    let arg = Arg::new(knob.path)
        .long(knob.flag())
        .value_name("VALUE")
        .help(format!("{} [{}; default {}]", knob.doc, knob.kind, knob.default))
        .help_heading(heading);
    // A switch is turned on by its name alone.
    let arg = if knob.is_switch() {
        arg.num_args(0..=1).default_missing_value(Switch::On.name())
    } else {
        arg
    };
    if knob.section() == own_section {
        arg.visible_alias(knob.key())
    } else {
        arg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Vec<(KnobId, String)> {
        let command = with_flags(Command::new("demo").no_binary_name(true));
        given(&command.try_get_matches_from(arguments).unwrap())
    }

    #[test]
    fn every_knob_is_a_flag() {
        for &id in KnobId::ALL {
            let flag = format!("--{}", id.knob().flag());
            assert_eq!(parse(&[&flag, "x"]), [(id, "x".to_owned())]);
        }
    }

    #[test]
    fn a_subcommand_drops_the_name_of_its_own_section() {
        assert_eq!(parse(&["--workers", "4"]), [(KnobId::DemoWorkers, "4".to_owned())]);
        let other = with_flags(Command::new("config").no_binary_name(true));
        assert!(other.try_get_matches_from(["--workers", "4"]).is_err());
    }

    #[test]
    fn a_switch_needs_no_value() {
        let on = |text: &str| vec![(KnobId::MockEventsConnect, text.to_owned())];
        assert_eq!(parse(&["--mock-events-connect"]), on("on"));
        assert_eq!(parse(&["--mock-events-connect", "off"]), on("off"));
        let workers = (KnobId::DemoWorkers, "4".to_owned());
        assert_eq!(
            parse(&["--mock-events-connect", "--workers", "4"]),
            [vec![workers], on("on")].concat()
        );
    }

    #[test]
    fn workers_are_given_one_by_one_and_keep_their_order() {
        let command = with_flags(Command::new("demo").no_binary_name(true));
        let matches = command.try_get_matches_from(["--worker", "b", "--workers", "4", "--worker=a,x=y"]);
        assert_eq!(workers(&matches.unwrap()), ["b", "a,x=y"]);
    }

    #[test]
    fn every_section_can_be_a_subcommand() {
        for &id in KnobId::ALL {
            with_flags(Command::new(id.knob().section())).debug_assert();
        }
    }

    #[test]
    fn the_command_is_well_formed_and_its_help_tells_range_and_default() {
        let mut command = with_flags(Command::new("demo"));
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        assert!(help.contains("1 to 16384 ranks; default 1024"), "{help}");
        assert!(help.contains("counted | set; default counted"), "{help}");
    }
}
