//! dev only
use homing_tokenize::*;
use std::io::BufRead;
fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap();
    let file = args.next().unwrap();
    let show: usize = args.next().map_or(3, |n| n.parse().unwrap());
    let p = Prompter::load(
        folder.as_ref(),
        PromptOptions::new(Dialect::Vllm, Clock::fixed(1_720_000_000)),
    )
    .unwrap();
    println!("{}", p.describe());
    let (mut same, mut diff, mut bad) = (0, 0, 0);
    for line in std::io::BufReader::new(std::fs::File::open(file).unwrap()).lines() {
        let v: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let want: Option<Vec<u32>> = v.get("tokens").map(|t| {
            t.as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_u64().unwrap() as u32)
                .collect()
        });
        let got = if let Some(t) = v.get("text") {
            p.text(t.as_str().unwrap(), Marks::Added)
        } else {
            p.chat(&v["body"]).map(|p| p.tokens)
        };
        match (&want, &got) {
            (Some(w), Ok(g)) if w == g => same += 1,
            (None, Err(_)) => same += 1,
            (Some(w), Ok(g)) => {
                diff += 1;
                if diff <= show {
                    let at = w.iter().zip(g).take_while(|(a, b)| a == b).count();
                    let t = p.tokenizer();
                    let lo = at.saturating_sub(6);
                    println!(
                        "DIFF at {at} of {} / {}:\n  want {:?} {:?}\n  got  {:?} {:?}",
                        w.len(),
                        g.len(),
                        t.decode(&w[lo..(at + 12).min(w.len())]),
                        &w[at..(at + 6).min(w.len())],
                        t.decode(&g[lo..(at + 12).min(g.len())]),
                        &g[at..(at + 6).min(g.len())]
                    );
                }
            }
            _ => {
                bad += 1;
                if bad <= show {
                    println!("BAD want {:?} got {:?}", v.get("error"), got.as_ref().err());
                }
            }
        }
    }
    println!("{folder}: same {same} diff {diff} bad {bad}");
}
