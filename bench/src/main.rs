//! How do our index, our hash and our decisions compare with those of the nearest peers? Same machine, same process, same workload.
//!
//! What is measured and how to read it is in `README.md`.

mod alloc;
mod args;
mod catalog;
mod churn;
mod contender;
#[cfg(feature = "ours")]
mod decide;
mod dynamo;
mod exact;
mod fleet;
mod gateway;
mod growth;
mod hash;
mod lineup;
mod log;
mod lookups;
mod measure;
mod memory;
mod mock;
mod mooncake;
mod oracle;
#[cfg(feature = "ours")]
mod ours;
mod queries;
mod report;
mod rng;
mod smg;
mod speed;
mod targets;
mod threads;
mod workload;

use std::process::ExitCode;

use args::{Command, IndexArgs, Output, Part};
use catalog::Labels;
use mooncake::TraceError;
use report::Report;
use speed::Depth;
use targets::Target;
use workload::Scenario;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

fn main() -> ExitCode {
    match args::parse(std::env::args().skip(1)) {
        Ok(Command::Index(args)) => match run_index(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
        Ok(Command::Hash(output)) => {
            run_hash(output);
            ExitCode::SUCCESS
        }
        #[cfg(feature = "ours")]
        Ok(Command::Decide(output, size)) => {
            run_decide(output, size);
            ExitCode::SUCCESS
        }
        Ok(Command::Mock(args)) => {
            let mut report = Report::default();
            match mock::run(&args, &mut report) {
                Ok(targets) => print_report("mock", &report, &targets, args.output),
                Err(error) => return fail(&*error),
            }
            ExitCode::SUCCESS
        }
        Ok(Command::Gateway(args)) => {
            let mut report = Report::default();
            match gateway::run(&args, &mut report) {
                Ok(targets) => print_report("gateway", &report, &targets, args.output),
                Err(error) => return fail(&*error),
            }
            ExitCode::SUCCESS
        }
        Ok(Command::Help) => {
            print!("{}", args::USAGE);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("homing-bench: {error}");
    ExitCode::FAILURE
}

fn run_index(args: &IndexArgs) -> Result<(), TraceError> {
    let sequences = args.size.pick(10_000, 400);
    let mut report = Report::default();
    if args.wants(Part::Exact) {
        exact::run(&mut report);
    }
    if args.wants(Part::Churn) {
        churn::run(args, &mut report)?;
    }
    if args.wants(Part::Speed) {
        run_speed(args, sequences, &mut report);
    }
    if args.wants(Part::Memory) {
        for scenario in memory::scenarios(sequences) {
            memory::run(scenario, args.size, &mut report);
        }
    }
    if args.wants(Part::Growth) {
        growth::run(args.size, &mut report);
    }
    print_report("index", &report, &targets::index(args, sequences, &report), args.output);
    Ok(())
}

fn run_speed(args: &IndexArgs, sequences: usize, report: &mut Report) {
    for workers in &args.workers {
        let depth = if *workers == targets::middle(args) {
            Depth::Threads
        } else {
            Depth::Plain
        };
        speed::run(Scenario::main(*workers, sequences), depth, args.size, report);
    }
    for segments in [8, 64] {
        let scenario = Scenario {
            segments,
            ..Scenario::main(64, sequences)
        };
        speed::run(scenario, Depth::Plain, args.size, report);
    }
    let scenario = Scenario {
        labels: Labels::Private,
        ..Scenario::main(64, sequences)
    };
    speed::run(scenario, Depth::Plain, args.size, report);
}

fn run_hash(output: Output) {
    let mut report = Report::default();
    hash::run(&mut report);
    print_report("hash", &report, &targets::hash(&report), output);
}

#[cfg(feature = "ours")]
fn run_decide(output: Output, size: args::Size) {
    let mut report = Report::default();
    decide::run(size, &mut report);
    print_report("decide", &report, &targets::decide(&report), output);
}

fn print_report(command: &str, report: &Report, targets: &[Target], output: Output) {
    match output {
        Output::Json => println!("{}", report.json(command, targets)),
        Output::Table => println!("{}", report.tables(targets)),
    }
}
