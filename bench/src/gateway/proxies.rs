//! Who stands between clients and workers, and what does it take of the machine?
//!
//! Proxies are processes of their own. Their processor time and memory are what Linux says of them and their children.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Failure;
use super::prompts::MODEL;
use super::upstream::{BLOCK, Place};

/// How long a proxy may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Linux counts the processor time of a process in hundredths of a second.
const TICKS: f64 = 100.0;

/// A proxy that runs.
#[derive(Debug)]
pub struct Proxy {
    /// As tables call it.
    pub name: &'static str,
    /// Where clients go.
    pub address: SocketAddr,
    /// Where operators ask, if they can.
    pub admin: Option<SocketAddr>,
    child: Child,
    folder: PathBuf,
}

/// How Homing is started.
#[derive(Clone, Copy, Debug)]
pub struct Homing<'a> {
    /// The program.
    pub program: &'a Path,
    /// The folder of a model.
    pub tokenizer: Option<&'a Path>,
    /// By what workers are chosen.
    pub policy: &'a str,
    /// Threads that carry requests.
    pub threads: usize,
}

impl Proxy {
    /// Plain nginx: no buffering, connections to workers stay open, a process for each core.
    pub fn nginx(program: &Path, workers: &[Place], processes: usize) -> Result<Self, Failure> {
        let address = free()?;
        let folder = folder("nginx")?;
        let place = folder.display();
        let mut servers = String::new();
        for worker in workers {
            servers += &format!("server {};", worker.address);
        }
        let config = format!(
            "daemon off; worker_processes {processes}; worker_rlimit_nofile 65536; pid {place}/pid; error_log {place}/log;\n\
             events {{ worker_connections 32768; }}\n\
             http {{ access_log off; client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n\
             fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;\n\
             upstream workers {{ {servers} keepalive 8192; keepalive_requests 1000000; }}\n\
             server {{ listen {address} backlog=8192; keepalive_requests 1000000; client_max_body_size 64m;\n\
             client_body_buffer_size 64k;\n\
             location / {{ proxy_pass http://workers; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             proxy_buffering off; proxy_read_timeout 1h; }} }} }}\n"
        );
        fs::write(folder.join("config"), config)?;
        let mut command = Command::new(program);
        command.arg("-p").arg(&folder).arg("-c").arg(folder.join("config"));
        Self::start("nginx", command, address, None, folder)
    }

    /// `homing serve`.
    pub fn homing(name: &'static str, how: Homing<'_>, workers: &[Place]) -> Result<Self, Failure> {
        let (address, admin) = (free()?, free()?);
        let folder = folder(name)?;
        let mut command = Command::new(how.program);
        command.arg("serve").args(["--serve-listen", &address.to_string()]);
        command.args(["--serve-admin", &admin.to_string(), "--serve-policy", how.policy]);
        command.args(["--serve-threads", &how.threads.to_string(), "--log-level", "warn"]);
        if let Some(tokenizer) = how.tokenizer {
            command.arg("--serve-tokenizer").arg(tokenizer);
        }
        for worker in workers {
            let spec = format!(
                "http://{},events={},model={MODEL},block-size={BLOCK}",
                worker.address, worker.events
            );
            command.args(["--worker", &spec]);
        }
        let proxy = Self::start(name, command, address, Some(admin), folder)?;
        proxy.wait("is not ready", || {
            let ready = get(address, "/ready").is_ok_and(|page| page.starts_with("HTTP/1.1 200"));
            ready && get(admin, "/admin/fleet").is_ok_and(|page| page.matches("\"number\":").count() == workers.len())
        })?;
        Ok(proxy)
    }

    fn start(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
        admin: Option<SocketAddr>,
        folder: PathBuf,
    ) -> Result<Self, Failure> {
        let log = File::create(folder.join("output"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        eprintln!("{name}: process {}, {}", child.id(), folder.display());
        let mut proxy = Self {
            name,
            address,
            admin,
            child,
            folder,
        };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if proxy.child.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                let said = fs::read_to_string(proxy.folder.join("output")).unwrap_or_default();
                return Err(format!("{name} does not listen: {said}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(proxy)
    }

    /// Waits for something.
    pub fn wait(&self, what: &str, holds: impl Fn() -> bool) -> Result<(), Failure> {
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} {what} after {PATIENCE:?}", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Seconds of a core that it took so far.
    pub fn busy(&self) -> f64 {
        self.processes().iter().filter_map(|id| ticks(*id)).sum::<f64>() / TICKS
    }

    /// Bytes that it has in memory now.
    pub fn memory(&self) -> f64 {
        self.processes().iter().filter_map(|id| resident(*id)).sum()
    }

    /// Itself and its children.
    fn processes(&self) -> Vec<u32> {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        [own].into_iter().chain(children).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // To be told leaves time to end one's children.
        let told = Command::new("kill").arg(self.child.id().to_string()).status();
        let began = Instant::now();
        while told.as_ref().is_ok_and(std::process::ExitStatus::success) && began.elapsed() < PATIENCE {
            if let Ok(Some(_)) = self.child.try_wait() {
                let _ = fs::remove_dir_all(&self.folder);
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What nginx says of itself.
pub fn nginx_version(program: &Path) -> Result<String, Failure> {
    let said = Command::new(program).arg("-v").output().map_err(|error| {
        format!(
            "{} cannot be started ({error}): install nginx, or say where it is with --nginx",
            program.display()
        )
    })?;
    let said = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Ok(said.rsplit('/').next().unwrap_or_default().to_owned())
}

/// A page, head included.
pub fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// An address that nobody uses now.
fn free() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn folder(name: &str) -> io::Result<PathBuf> {
    let name = name.replace([' ', ','], "-");
    let folder = std::env::temp_dir().join(format!("homing-bench-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn ticks(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may have anything in it, and ends with the last bracket.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024.0)
}
