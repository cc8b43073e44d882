use homing_sim::chaos::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let faults = homing_sim::fleet::faults::NAMES.to_vec();
    match args[1].as_str() {
        "run" => {
            let first: u64 = args[2].parse().unwrap();
            let seeds: u64 = args[3].parse().unwrap();
            let began = std::time::Instant::now();
            let order = Order { first, seeds, faults };
            let c = Campaign::run(&order);
            for f in c.found.iter().take(args.get(4).map_or(3, |n| n.parse().unwrap())) { println!("{f}\n"); }
            let mut kinds = std::collections::BTreeMap::new();
            for f in &c.found { kinds.entry(f.violation.check).or_insert(Vec::new()).push(f.run.seed); }
            println!("{:#?}", c.happened);
            println!("{} found, {kinds:?}, {:?}", c.found.len(), began.elapsed());
        }
        "one" => {
            let seed: u64 = args[2].parse().unwrap();
            let bug = args.get(3).and_then(|n| bug_named(n));
            let run = Run { seed, faults, bug, log: true };
            let d = run.draw();
            println!("{:#?}", d.setup);
            let o = repeat(&run);
            for l in &o.log { println!("{l}"); }
            println!("{:?} {:?}", o.violations, o.ended);
        }
        "time" => {
            for seed in args[2].parse::<u64>().unwrap()..args[3].parse().unwrap() {
                let run = Run { seed, faults: faults.clone(), bug: None, log: false };
                let b = std::time::Instant::now();
                let o = repeat(&run);
                println!("{seed} {:?} steps {} requests {} ended {}", b.elapsed(), o.steps, o.requests, o.ended);
            }
        }
        "hunt" => {
            let seeds: u64 = args[2].parse().unwrap();
            for bug in Bug::all() {
                if args.len() > 3 && bug.to_string() != args[3] { continue; }
                let h = hunt(bug, &Order { first: 0, seeds, faults: faults.clone() });
                println!("{bug}: {} seeds: {:?}", h.seeds, h.found.map(|f| (f.run.seed, f.violation.check, f.violation.what)));
            }
        }
        _ => {}
    }
}
