//! `homing status`: how is the fleet? A table in the terminal, from the gateway's listener for operators.

mod table;

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use homing_platform::{HttpClient, HttpClientConfig};
use serde_json::Value;

use crate::show::Style;
use crate::{print, service};
use table::Fleet;

/// Where a gateway answers operators unless it is told otherwise.
const URL: &str = "http://127.0.0.1:8081";
/// Over which time rates are taken, and how often the table is written anew.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 64 << 20;
/// Empties a terminal and begins at its top.
const ANEW: &str = "\x1b[2J\x1b[H";

/// The subcommand.
pub fn command() -> Command {
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("status")
        .about(
            "Print how the fleet of a running gateway is: workers, their load, their caches, and what is to be changed",
        )
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .default_value(URL)
                .help("Where the gateway answers operators (`serve.admin`)"),
        )
        .arg(
            Arg::new("token")
                .long("token")
                .value_name("TOKEN")
                .help("What operators show to the gateway, if it wants to see something"),
        )
        .arg(switch(
            "json",
            "Print one JSON object, as the gateway tells it, with rates",
        ))
        .arg(switch("watch", "Write the table anew every second, until interrupted"))
}

/// Prints it once, or again and again.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let url = matches.get_one::<String>("url").map_or(URL, String::as_str);
    let url = format!("{}/admin/fleet", url.trim_end_matches('/'));
    let token = matches.get_one::<String>("token").cloned();
    let (is_for_scripts, watches) = (matches.get_flag("json"), matches.get_flag("watch"));
    ensure!(!(is_for_scripts && watches), "--json and --watch do not go together");
    let style = Style::of(homing_config::colour(io::stdout().is_terminal()));
    service::until_told(service::Threads::Few, async |mut stop| {
        let client = HttpClient::new(HttpClientConfig {
            timeout: Some(PATIENCE),
            ..HttpClientConfig::default()
        });
        let asked = Asked { client, url, token };
        let mut before = asked.fleet().await?;
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = &mut stop => return Ok(()),
            }
            let now = asked.fleet().await?;
            let fleet = Fleet::between(&before, &now);
            if is_for_scripts {
                return print(&format!("{:#}\n", fleet.json()));
            }
            let text = fleet.text(style);
            if !watches {
                return print(&text);
            }
            write!(io::stdout(), "{ANEW}")?;
            print(&text)?;
            before = now;
        }
    })
}

/// Whom to ask.
struct Asked {
    client: HttpClient,
    url: String,
    token: Option<String>,
}

impl Asked {
    async fn fleet(&self) -> anyhow::Result<Value> {
        let mut request = self.client.get(&self.url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = request.send().await;
        let mut answer = answer.with_context(|| format!("no gateway answers at {}; name it with --url", self.url))?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            ensure!(
                body.len() + piece.len() <= LONGEST,
                "{} answers with more than {LONGEST} bytes",
                self.url
            );
            body.extend_from_slice(&piece);
        }
        if !status.is_success() {
            bail!("{} answers with status {status}", self.url);
        }
        serde_json::from_slice(&body).with_context(|| format!("{} answers with something else than a fleet", self.url))
    }
}
